"""Places for batches: handed on where they lie, and free once nobody has them."""

from __future__ import annotations

import numpy as np

from helpers.training.buffer_pool import LENT, Places

ASKED = 2


def made() -> Places:
    return Places(np.zeros((ASKED + LENT, 4, 2, 2, 3), np.uint8), ASKED)


def came(places: Places, value: int, images: int = 4) -> np.ndarray:
    """A batch that was asked for and came, full of a value."""
    place = places.take()
    places.memory[place] = value
    return places.arrived(place, images)


def test_a_batch_is_handed_on_where_it_lies_and_its_place_is_free_when_it_is_gone() -> None:
    places = made()
    batch = came(places, 7, 3)
    assert batch.shape == (3, 2, 2, 3) and np.shares_memory(batch, places.memory)
    assert len(places.free) == ASKED + LENT - 1 and not places.coming
    view = batch[1:][0, 0].reshape(-1)
    del batch
    assert len(places.free) == ASKED + LENT - 1  # the view is of the same memory
    assert view.tolist() == [7] * 6
    del view
    assert len(places.free) == ASKED + LENT


def test_who_keeps_all_batches_gets_copies_and_there_is_always_a_place() -> None:
    places = made()
    held = []
    for value in range(20):
        others = [places.take() for _ in range(ASKED - 1)]  # asked for meanwhile
        held.append(came(places, value))
        for other in others:
            places.memory[other] = 255
        places.give_back_coming()
    shared = [np.shares_memory(batch, places.memory) for batch in held]
    assert shared == [True] * LENT + [False] * (20 - LENT)
    assert all((batch == value).all() for value, batch in enumerate(held))
    held.clear()
    assert sorted(places.free) == list(range(ASKED + LENT))


def test_what_was_asked_for_and_never_came_is_given_back_once() -> None:
    places = made()
    kept = came(places, 1)
    place = places.take()
    places.take()
    places.give_back(place)
    places.give_back_coming()
    places.give_back_coming()
    assert len(places.free) == len(set(places.free)) == ASKED + LENT - 1
    assert (kept == 1).all()
