"""The names of the heads that a model may have, as used in checkpoints and on command lines.

Use these constants wherever code asks which head a model has.
"""

ENCODER, MASKED_LM, PRETRAINING, CAUSAL_LM = "encoder", "masked_lm", "pretraining", "causal_lm"
SEQUENCE_CLASSIFICATION = "sequence_classification"
TOKEN_CLASSIFICATION = "token_classification"
QUESTION_ANSWERING = "question_answering"
FINE_TUNED = (SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION, QUESTION_ANSWERING)  # the heads that predict labels
