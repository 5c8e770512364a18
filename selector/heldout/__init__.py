"""Quality on held-out prompts, and what it cost: looks, gaps, curves of cost, comparisons over seeds."""
