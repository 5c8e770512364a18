"""Drawn batches for trainers that read a data set: `draws` asks for whole batches and keeps them, `dataset` holds the
data set and the sampler that a data loader takes, `ranks` holds processes to one batch, `buffer` collects single
rollouts into reports, `away` draws uniformly while there is no service.

Nothing here imports torch: a data set is anything with `__len__` and `__getitem__`, a sampler anything that iterates.
"""
