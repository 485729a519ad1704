"""Freed memory is kept: using it again makes no new pages."""

from page_faults import GIVEN_BACK, KEPT, of_filling_again, only_glibc


@only_glibc
def test_what_was_freed_is_used_again_without_new_pages() -> None:
    assert of_filling_again("") > GIVEN_BACK
    assert of_filling_again("from helpers.frameworks import memory; memory.keep_freed()") < KEPT
