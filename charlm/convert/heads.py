"""The names of heads: which output a model has, as checkpoints and command lines say it."""

ENCODER, MASKED_LM, PRETRAINING, CAUSAL_LM = "encoder", "masked_lm", "pretraining", "causal_lm"
SEQUENCE_CLASSIFICATION = "sequence_classification"
TOKEN_CLASSIFICATION = "token_classification"
QUESTION_ANSWERING = "question_answering"
FINE_TUNED = (SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION, QUESTION_ANSWERING)  # those that predict labels
