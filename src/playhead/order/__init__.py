"""Draw -> pick, as pure functions of integers.

In: orders (how each source is shuffled), blends (which source is drawn when). Out: picks (source, epoch, row).
"""
