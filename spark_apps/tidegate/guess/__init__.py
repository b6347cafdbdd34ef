"""What files of a stranger's say of themselves: format, columns, times, ids and rate, as a pipeline to start from.

``sampling`` reads a bounded part of the files and is the only module that touches a disk; every other module is a
function of what was read. ``propose`` composes them, ``writing`` puts the result into words.
"""
