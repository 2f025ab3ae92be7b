"""What each family learns in pre-training; the loop that trains it is `charlm.train`, the same for all."""
