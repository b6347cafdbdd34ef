"""The same continuous join-aggregate in Tidegate and in the engines that one could pick instead."""
