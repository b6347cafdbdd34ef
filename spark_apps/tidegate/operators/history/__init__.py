"""An endless past in a fixed store: hashed priorities, exact leaves, the HDS-Tree, thinning, estimates with intervals.

Source: papers/03 (Zhang, Li, Wang, Guo 2005, "Algorithms for Storing and Aggregating Historical Streaming Data").
"""
