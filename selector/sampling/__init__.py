"""Sampling designs: from sizes over a pool to drawn prompts with known chances. Arrays only; no run is known here."""
