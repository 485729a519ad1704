"""The one exception a user of data_prep has to know."""


class DataError(Exception):
    """Something about the data or the folder that the user can put right.

    Its text is one line: what is wrong, where, and what to do about it. The command line prints
    that line and exits with code 2.
    """
