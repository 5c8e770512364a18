"""Embeddings of texts without any model: hashed character n-grams, weighted by how rare they are, and their directions.

Used by the benchmark of estimators, as a stand-in for sentence embeddings that needs no download. Pure numpy.
"""

from collections.abc import Sequence

import numpy as np

from predictors.base import FloatArray

NUM_BUCKETS = 1024
GRAM_LENGTHS = (3, 4, 5)  # bytes
NUM_DIRECTIONS = 64
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def embeddings(texts: Sequence[str]) -> FloatArray:
    """(N, NUM_DIRECTIONS) the texts along the directions in which they differ most, of mean square 1 a number."""
    weight_NB = np.array([_counts(text) for text in texts], dtype=np.float32)
    np.log1p(weight_NB, out=weight_NB)
    share_B = (1.0 + np.count_nonzero(weight_NB, axis=0)) / (1.0 + len(texts))
    weight_NB *= -np.log(share_B).astype(np.float32)
    weight_NB /= np.maximum(np.linalg.norm(weight_NB, axis=1, keepdims=True), 1e-6)
    weight_NB -= weight_NB.mean(axis=0)
    directions_BB = np.linalg.eigh((weight_NB.T @ weight_NB).astype(np.float64))[1]
    found_ND = weight_NB @ directions_BB[:, : -NUM_DIRECTIONS - 1 : -1]
    return np.asarray(found_ND / np.sqrt(np.mean(found_ND**2)), dtype=np.float64)


def _counts(text: str) -> np.ndarray:
    """How often each bucket of n-grams occurs."""
    letters = np.frombuffer(f" {' '.join(text.lower().split())} ".encode(), np.uint8).astype(np.uint64)
    count_B = np.zeros(NUM_BUCKETS)
    for length in GRAM_LENGTHS:
        size = max(letters.size - length + 1, 0)
        gram = np.full(size, length, dtype=np.uint64)
        for place in range(length):
            gram = (gram ^ letters[place : place + size]) * MULTIPLIER
            gram ^= gram >> np.uint64(29)
        count_B += np.bincount((gram >> np.uint64(20)) % np.uint64(NUM_BUCKETS), minlength=NUM_BUCKETS)
    return count_B
