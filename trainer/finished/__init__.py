"""What to do with rollouts that are paid for: which of a batch the update should see.

Pure functions of arrays, for the reference trainer (`loss.keep`) and for any other. They decide nothing about prompts,
so the service never hears of them: a trainer that uses one says `weights_applied: false`, and `claim` here says what
its steps climb then.

pods        the subset of largest reward variance           duplicate   informative groups in place of degenerate ones
cppo        the largest advantages                          vcrl        a gate on the variance of a group
gfpo        the shortest, or most reward a token            replay      past informative groups, by reference
order       the shortest predicted first                    keeping     the rules that the reference trainer knows
claim       what each of them claims
"""
