"""Files of a batch that are not decoded, and where the pixels of its crops lie in them."""

import io

import numpy as np
import pytest
from PIL import Image

from helpers.errors import UserError
from helpers.training import encoded_images
from helpers.training.image_data import copy_into


def jpeg(height: int, width: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (width, height)).save(file, "JPEG")
    return file.getvalue()


def test_crops_and_flips_are_found_in_images_of_different_sizes() -> None:
    places = np.empty((2, 5, 4, 1), np.int32)
    with encoded_images.collected() as files:
        copy_into(places[0], encoded_images.add(jpeg(9, 7))[2:7, 3:7])
        copy_into(places[1], encoded_images.add(jpeg(20, 3000))[10:15, 2000:2004][:, ::-1])
    assert not encoded_images.collecting() and len(files) == 2
    rows, columns = encoded_images.rows_and_columns(places)
    assert rows.tolist() == [[2, 3, 4, 5, 6], [10, 11, 12, 13, 14]]
    assert columns.tolist() == [[3, 4, 5, 6], [2003, 2002, 2001, 2000]]


def test_a_transform_that_computes_or_turns_is_refused() -> None:
    place = np.empty((4, 4, 1), np.int32)
    with encoded_images.collected():
        image = encoded_images.add(jpeg(4, 4))
        with pytest.raises(UserError, match="for transforms that crop and flip"):
            copy_into(place, (image * 0.5).astype(np.uint8))
        copy_into(place, image.transpose(1, 0, 2))
    with pytest.raises(UserError, match="for transforms that crop and flip"):
        encoded_images.rows_and_columns(place[None])
