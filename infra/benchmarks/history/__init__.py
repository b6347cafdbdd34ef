"""What history costs and how wrong it is: a long synthetic stream through sampler and tree, against its rivals."""
