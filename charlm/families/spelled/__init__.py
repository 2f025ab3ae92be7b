"""What Char2Subword and XRayEmb share: sequences in which some words are read from their characters."""
