"""The names of the heads that a model may have, as used in checkpoints and on command lines.

Use these constants wherever code asks which head a model has.
"""

from collections.abc import Collection

ENCODER, MASKED_LM, PRETRAINING, CAUSAL_LM = "encoder", "masked_lm", "pretraining", "causal_lm"
SEQUENCE_CLASSIFICATION = "sequence_classification"
TOKEN_CLASSIFICATION = "token_classification"
QUESTION_ANSWERING = "question_answering"
FINE_TUNED = (SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION, QUESTION_ANSWERING)  # the heads that predict labels

# How a head for labels computes them (`model.label_head`): one linear layer, one of XRayEmb's (section 4.2), the LSTM
# of taggers on the states of a frozen model (CharBERT, section 5.3), or one linear layer over the mean of a text.
LINEAR, PERCEPTRON, LSTM_TAGGER, LSTM_768, MEAN = "linear", "perceptron", "lstm", "lstm768", "mean"
READ_BY = {  # the one head that each is for
    PERCEPTRON: SEQUENCE_CLASSIFICATION,
    MEAN: SEQUENCE_CLASSIFICATION,
    LSTM_TAGGER: TOKEN_CLASSIFICATION,
    LSTM_768: TOKEN_CLASSIFICATION,
}
_WHAT = {SEQUENCE_CLASSIFICATION: "texts", TOKEN_CLASSIFICATION: "words"}


def check_label_head(label_head: str, head: str, where: str, among: Collection[str] = (LINEAR, *READ_BY)) -> None:
    """Checks that a way to compute labels is one for models with the given head.

    Args:
      where: beginning of the message.
      among: the ways that the family has.

    Raises:
      ValueError: it is for another head; names the one that it is for.
    """
    known = tuple(name for name in among if READ_BY.get(name, head) == head)
    if label_head not in known:
        what = f" is for labels of {_WHAT[READ_BY[label_head]]}" if label_head in READ_BY else ""
        *others, last = known
        expected = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"{where}label_head={label_head}{what}; expected {expected} for {head.replace('_', ' ')}")
