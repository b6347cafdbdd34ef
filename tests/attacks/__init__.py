"""Standing campaigns: mutated records and declarations, against an independent reading and against every consumer.

``make attack SEED=… COUNT=…`` runs them for as long as one likes, ``make test`` for seconds with fixed seeds.
"""
