"""The calls of the contract, by what they are about, as the parts that `trainer.client.Client` is put together from.

base     how an answer becomes a value, a request a body      pools      pools and their prompts
runs     runs, batches, tickets and reports                   progress   steps, signals, checkpoints, restores
reading  audit, costs, comparisons, beliefs, the log
"""
