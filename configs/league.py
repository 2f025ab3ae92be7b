"""A comparison of ways to look inside words at equal budget: python -m charlm.league league:small \\
    --set data.folder=data --workdir runs/league

Variants: "small" has models of some 5 million parameters, a size that two CPU cores train; "small_bfloat16" computes
them in bfloat16, for accelerators, and for processors that multiply it faster (AMX, AVX512-BF16); "evening" has smaller
models and five short tasks: some thirteen hours of two cores of such a processor; "curves" has BERT, with both kinds of
positions, and HLM of "evening" on an eighth, a quarter, a half and all of the words; "base", the same as "", has the
models' base sizes, for a pod; "tiny" shows in minutes that all of it works. The folder of data is laid out as the names
of files below say, and docs/howto/league.md tells where they come from.

Sizes: the bodies, that is, all parameters but tables of embeddings and what predicts in pre-training, are equal within
some 4 %, those of "small" as the jobs budget/* count them (4.7 million of BERT), those of "base" by the formulas below
(85 million). So HLM has fewer layers than the paper's, since it has encoders inside and between words, and
CharacterBERT fewer than its own, since it has a CNN and highways. HLM has relative positions, so BERT and CharacterBERT
are there with rotary ones, too: what characters do is then told apart from what positions do. CharBERT, Char2Subword
and XRayEmb add their parts to the same BERT. They see a quarter of the words again, and so do the BERTs that they are
to be compared with: "bert-longer", and "advbert", whose text has the typos that CharBERT's has. Learning rates are
ours, one for all that start from nothing and one for all that go on, but Char2Subword: its module, which learns alone,
has higher ones, and is computed in float32.
"""

from typing import NamedTuple

import ml_collections

from charlm.league.config import add_system, add_task, is_trained
from charlm.league.config import get_config as defaults

COMMAND = "league"  # the command that reads this file

_TEXTS = (
    "{folder}/text/en_gutenberg.txt.gz", "{folder}/text/en_reddit_goemotions.txt.gz",
    "{folder}/text/en_wikipedia_squad_contexts.txt.gz", "{folder}/text/en_wikitext2_valid.txt.gz", "builtin",
)  # fmt: skip
_LISTS = ("text.splitter=rules", "text.pieces=8000", "text.terms=8000", "text.chars=300")
_NOISES = (
    "keyboard", "swap", "drop", "insert", "repeat", "case", "hlm_drop", "hlm_repeat", "hlm_case", "hlm", "charbert",
    "charbert_nlm", "char2subword", "spaces", "homoglyph", "leet", "ocr", "misspelling",
)  # fmt: skip
_TYPOS = ("keyboard:0.1", "swap:0.1", "drop:0.1", "insert:0.1", "repeat:0.1", "case:0.1", "charbert:0.5")
_MEAN = ("model.label_head=mean",)
_CLAIMS = (
    "hlm ahead of bert on all",  # HLM, tables 2 and 4
    "hlm ahead of bert on all under noise",  # HLM, section 4.2
    "hlm ahead of bert+symspell on all under noise",
    "hlm ahead of bert-typos on all under noise",
    "hlm-typos ahead of bert-typos on all under noise",
    "hlm ahead of characterbert on all under noise",
    "charbert ahead of bert-longer on all under charbert",  # CharBERT, section 4.5
    "charbert ahead of bert-longer on all",
    "charbert ahead of advbert on all under charbert",
    "charbert ahead of advbert on all",
    "char2subword ahead of bert-longer on all under char2subword",  # Char2Subword, section 5
    "char2subword ahead of advbert on all under char2subword",
    "char2subword ahead of char2subword-full on all",
    "char2subword-full ahead of char2subword on all under noise",
    "xrayemb ahead of bert-longer on coinages",
    "xrayemb ahead of bert-longer on all",  # XRayEmb, section 4
    "xrayemb ahead of bert-longer on all under noise",
    "characterbert ahead of bert on all",
    "roformer ahead of bert on all",  # no claim of theirs, but what of HLM's lead is due to its positions
    "hlm ahead of roformer on all",
    "hlm ahead of roformer on all under noise",
    "hlm ahead of roformer+symspell on all under noise",
    "hlm-typos ahead of roformer-typos on all under noise",
    "characterbert-rotary ahead of roformer on all",
    "characterbert-rotary ahead of roformer on all under noise",
    "characterbert-rotary-typos ahead of roformer-typos on all under noise",
    "hlm ahead of characterbert-rotary on all",
    "hlm ahead of characterbert-rotary on all under noise",
    "hlm-typos ahead of characterbert-rotary-typos on all under noise",
    "bert+symspell ahead of bert on all under noise",
)


def _clean_and_noisy(*pairs: str) -> tuple[str, ...]:
    """Returns of pairs such as "hlm ahead of bert" the claims on all tasks, clean and under noise."""
    return tuple(f"{pair} on all{noise}" for pair in pairs for noise in ("", " under noise"))


_LATER_CLAIMS = (  # of HLM's layers inside words, and of what builds on a BERT that has learned context
    *_clean_and_noisy("hlm-two ahead of hlm", "hlm-two ahead of roformer"),
    "hlm-two ahead of roformer+symspell on all under noise",
    *_clean_and_noisy(
        "hlm-two ahead of characterbert-rotary", "hlm-ngrams ahead of hlm-two", "hlm-ngrams ahead of roformer"
    ),
    "hlm-ngrams ahead of roformer+symspell on all under noise",
    *_clean_and_noisy("hlm-ngrams ahead of characterbert-rotary"),
    "bert-longer-rotary ahead of roformer on all",
    "charbert-rotary ahead of bert-longer-rotary on all under charbert",
    "charbert-rotary ahead of advbert-rotary on all under charbert",
    *_clean_and_noisy("charbert-rotary ahead of bert-longer-rotary", "charbert-rotary ahead of advbert-rotary"),
    "char2subword-rotary ahead of bert-longer-rotary on all under char2subword",
    "char2subword-rotary ahead of advbert-rotary on all under char2subword",
    *_clean_and_noisy("char2subword-rotary ahead of bert-longer-rotary"),
    "xrayemb-rotary ahead of bert-longer-rotary on coinages",
    "xrayemb-rotary ahead of bert-longer-rotary on coinages under noise",
    *_clean_and_noisy("xrayemb-rotary ahead of bert-longer-rotary", "charbert-rotary ahead of characterbert-rotary"),
)


class _Size(NamedTuple):
    """Settings of the models of one size, each a tuple of KEY=VALUE as `--set` takes them."""

    learning: tuple[str, ...]  # rate, optimizer and batch of all that start from nothing
    layers: tuple[str, ...]  # BERT's
    lists: tuple[str, ...]  # splitter, and lengths of lists of subwords, terms and characters
    spelled: tuple[str, ...]  # of CharacterBERT
    words: tuple[str, ...]  # of HLM
    module: tuple[str, ...]  # of Char2Subword
    spelling: tuple[str, ...]  # XRayEmb's encoder and generator
    positions: int  # rows of BERT's table of positions
    pieces: int  # subwords of the RoBERTa-style one


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant; ValueError when there is no such variant."""
    if variant and variant not in VARIANTS:
        raise ValueError(f"configs/league.py has no variant {variant!r}; choose {', '.join(VARIANTS)}")
    config = defaults()
    VARIANTS[variant or "base"](config)
    return config


def tiny(config: ml_collections.ConfigDict) -> None:
    """Three small models and two tasks: minutes."""
    config.title = "League of tiny models"
    config.budget.words = 60_000
    config.budget.batches = 4
    config.budget.evaluations = config.budget.checkpoints = 2
    config.budget.reports = 10
    config.tuning.seeds = (0, 1)
    config.robustness.noise = ("keyboard", "swap")
    config.robustness.samples = 500
    config.robustness.examples = 200
    plain = ("data.noise_rate=0.0", "data.mask_rate=0.15", "data.max_length=64", "model.max_positions=64")
    shape = ("model.hidden=64", "model.heads=2", "model.ffn=128", "model.char_hidden=32")
    add_system(config, "bert", title="BERT", config="charbert_base:tiny+advbert", set=(*plain, *shape))
    add_system(
        config, "roberta", title="RoBERTa-style", config="charbert_base:tiny+advbert+roberta", subwords="bytes:roberta",
        pieces=1000, set=(*plain[:3], *shape),
    )  # fmt: skip
    add_system(config, "charbert", title="CharBERT", config="charbert_base:tiny", start="bert", share=0.25, set=shape)
    add_system(
        config, "hlm", title="HLM", config="hlm_base:tiny",
        set=("model.hidden=64", "model.heads=2", "model.intra_ffn=64", "model.inter_ffn=128"),
    )  # fmt: skip
    add_system(config, "bert+nfkc", title="BERT behind NFKC", behind="bert", defence="nfkc")
    noisy = ("data.noise=keyboard:0.1", "data.noise_share=0.5")
    add_system(config, "bert-typos", title="BERT, tuned on typos", same="bert", tune=noisy)
    tuning = ("train.epochs=1", "train.checkpoint_every=20", "optim.learning_rate=1e-3")
    pos, emotions = "{folder}/pos/en_ewt-ud-dev.conllu.gz", "{folder}/cls/goemotions_dev.tsv.gz"
    add_task(config, "pos", title="Parts of speech", config="tag:tiny", train=(pos,), set=("data.tag=upos", *tuning))
    columns = ("data.text=0", "data.label=1", "data.header=no", "data.separator=,", "data.multi_label=first")
    add_task(config, "emotions", title="Emotions", config="classify:tiny", train=(emotions,), set=(*columns, *tuning))
    config.claims = (
        "hlm ahead of bert on pos under noise",
        "charbert ahead of bert on all",
        "hlm ahead of bert on all",
    )


def small(config: ml_collections.ConfigDict) -> None:
    """Models with bodies of some 5 million parameters, ten million words each."""
    config.title = "League of small models"
    config.corpora.train = _TEXTS
    config.budget.words = 10_000_000
    config.robustness.examples = 1000
    width = ("model.hidden=256", "model.heads=4")
    learning = _learning("7e-4", 32)
    # A layer of width D and feed-forward width F has 4 D^2 + 2 D F weights: 0.79 million here, six of them 4.7 million.
    layers = (*width, "model.layers=6", "model.ffn=1024", "data.max_length=128")
    # CharacterBERT's CNN and highway layer have 0.7 million, so it has five layers.
    spelled = (
        "text.splitter=rules", "text.lowercase=False", "text.mlm_words=8000", *width, "model.layers=5",
        "model.ffn=1024", "model.max_positions=128", "data.max_length=128", "model.char_slots=24",
        "model.windows=(1,2,3,4,5,6)", "model.filters=(16,16,32,64,128,256)", "model.highways=1",
    )  # fmt: skip
    # HLM's relative positions add 2 D^2 a layer: 0.85 million between words, four of them, 0.66 inside, two of them.
    words = (
        "text.splitter=rules", *width, "model.intra_layers=2", "model.inter_layers=4", "model.intra_ffn=512",
        "model.inter_ffn=896", "model.vocab_size=512", "model.position_buckets=64", "model.max_relative_words=128",
        "data.max_words=128",
    )  # fmt: skip
    module = (
        "model.hidden=128", "model.heads=4", "model.layers=2", "model.char_slots=32", "data.batch_size=128",
        "data.max_length=128", "text.splitter=rules", "optim.learning_rate=2e-3", "optim.warmup_steps=100",
        "train.steps=2000", "train.eval_every=1000", "train.checkpoint_every=500", "contextual.batch_size=32",
        "contextual.accumulation=1", "contextual.learning_rate=5e-4",
    )  # fmt: skip
    spelling = ("model.char_embedding=64", "model.char_hidden=128", "model.generator_hidden=128")
    _systems(config, _Size(learning, layers, _LISTS, spelled, words, module, spelling, positions=128, pieces=8000))
    tuning = ("optim.learning_rate=5e-4", "train.patience=2")
    _tasks(config, tuning, epochs=6)


def evening(config: ml_collections.ConfigDict) -> None:
    """Models with bodies of some 1.3 million parameters, a budget of five million words, and five short tasks."""
    config.title = "League of an evening"
    config.corpora.train = _TEXTS
    config.budget.words = 5_000_000
    config.budget.evaluations = 5
    config.robustness.examples = 500
    width = ("model.hidden=192", "model.heads=3")
    learning = (*_learning("1e-3", 16), "model.dtype=bfloat16")
    # Few layers, since deep ones of this size stay at the frequencies of subwords for longer than the budget: 0.44
    # million each, three of them 1.33 million.
    layers = (*width, "model.layers=3", "model.ffn=768", "data.max_length=128")
    spelled = (  # its CNN and highway layer have 0.4 million
        "text.splitter=rules", "text.lowercase=False", "text.mlm_words=8000", *width, "model.layers=2",
        "model.ffn=768", "model.max_positions=128", "data.max_length=128", "model.char_slots=24",
        "model.windows=(1,2,3,4,5)", "model.filters=(16,32,64,128,192)", "model.highways=1",
    )  # fmt: skip
    words = (  # 0.46 million a layer between words, two of them, and 0.39 inside
        "text.splitter=rules", *width, "model.intra_layers=1", "model.inter_layers=2", "model.intra_ffn=432",
        "model.inter_ffn=608", "model.vocab_size=512", "model.position_buckets=64", "model.max_relative_words=128",
        "data.max_words=128",
    )  # fmt: skip
    module = (
        "model.hidden=96", "model.heads=3", "model.layers=2", "model.char_slots=32", "data.batch_size=128",
        "data.max_length=128", "text.splitter=rules", "optim.learning_rate=2e-3", "optim.warmup_steps=100",
        "train.steps=1000", "train.eval_every=500", "train.checkpoint_every=250", "contextual.batch_size=16",
        "contextual.accumulation=1", "contextual.learning_rate=5e-4",
    )  # fmt: skip
    spelling = ("model.char_embedding=64", "model.char_hidden=96", "model.generator_hidden=96")
    size = _Size(learning, layers, _LISTS, spelled, words, module, spelling, positions=128, pieces=8000)
    _systems(config, size)
    _inside_words(config, size)
    _retrofits(config, size, rotary=True)  # on a BERT that has learned context
    tuning = ("optim.learning_rate=7e-4", "train.patience=2", "model.dtype=bfloat16")
    _tasks(config, tuning, epochs=3, pos=1, coinages=10, disease=2, entities=6)
    for task in ("inference", "answers"):  # few examples to learn from, and long ones
        del config.tasks[task]
    config.tasks["emotions"].train, config.tasks["emotions"].measure = ("{folder}/cls/goemotions_dev.tsv.gz",), ()
    config.robustness.noise = (
        "keyboard", "swap", "drop", "case", "hlm", "charbert", "char2subword", "homoglyph", "misspelling",
    )  # fmt: skip
    of_texts = ("emotions", "coinages")
    for system in ("bert", "roformer", "characterbert-rotary", "hlm", "hlm-ngrams"):
        title = f"{config.systems[system].title}, mean of all positions"
        add_system(config, f"{system}-mean", title=title, same=system, tune=_MEAN, tasks=of_texts)
    config.claims = _evening_claims(of_texts)


def _evening_claims(of_texts: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the claims of "evening": on all tasks, on each, and of how those with whole texts are read."""
    # Its tasks ask for different things: emotions for telling words, parts of speech for endings and the words around.
    single = ("pos", "disease", "entities", "emotions")
    claims = (*_CLAIMS, *_LATER_CLAIMS)
    of_all = [text for text in claims if " on all" in text]
    of_each = [text.replace(" on all", f" on {task}") for task in single for text in of_all]
    of_texts_alone = [
        f"{pair} on {task}{noise}"
        for pair in (
            "hlm-mean ahead of hlm",
            "bert-mean ahead of bert",
            "hlm-mean ahead of bert-mean",
            "hlm-ngrams-mean ahead of hlm-mean",
            "hlm-ngrams-mean ahead of roformer",
            "hlm-ngrams-mean ahead of characterbert-rotary",
            "roformer-mean ahead of roformer",
            "characterbert-rotary-mean ahead of characterbert-rotary",
            "hlm-ngrams-mean ahead of roformer-mean",
            "hlm-ngrams-mean ahead of characterbert-rotary-mean",
        )
        for task in of_texts
        for noise in ("", " under noise")
    ]
    return (*claims, *of_each, *of_texts_alone)


def _inside_words(config: ml_collections.ConfigDict, size: _Size) -> None:
    """Adds HLMs of the size of "evening" with more inside words."""
    # The same body with two layers inside words: single runs on fewer words tagged better with them.
    deep = (*size.words, *size.learning, "model.intra_layers=2", "model.intra_ffn=128", "model.inter_ffn=416")
    add_system(config, "hlm-two", title="HLM, two layers inside words", config="hlm_base", set=deep)
    add_system(  # a table of as many rows as that of BERT's subwords
        config, "hlm-ngrams", title="HLM, two layers inside words, n-grams", config="hlm_base",
        set=(*deep, "model.ngrams=8000"),
    )  # fmt: skip


def curves(config: ml_collections.ConfigDict) -> None:
    """The HLM of "evening", and BERT with both kinds of positions, on several shares of its words."""
    evening(config)
    config.title = "Curves of BERT and HLM"
    read = ("bert", "roformer", "hlm")
    for name in set(config.systems) - {*read}:
        del config.systems[name]
    for task in set(config.tasks) - {"pos", "emotions"}:
        del config.tasks[task]
    # From [CLS], which pre-training never used, HLM learns next to nothing of texts.
    config.tasks["emotions"]["set"] = (*config.tasks["emotions"]["set"], *_MEAN)
    for name, share in (("eighth", 0.125), ("quarter", 0.25), ("half", 0.5)):
        for system in read:
            _on_share(config, system, f"{system}-{name}", share)
    config.claims = tuple(
        f"hlm{at} ahead of {rival}{at} on {task}{noise}"
        for rival in ("bert", "roformer")
        for task in ("pos", "emotions")
        for at in ("-eighth", "-quarter", "-half", "")
        for noise in ("", " under noise")
    )


def _on_share(config: ml_collections.ConfigDict, system: str, name: str, share: float) -> None:
    """Adds a system once more, on another share of the budget: a point of its curve in the report."""
    same = {key: value for key, value in config.systems[system].items() if key not in ("title", "share")}
    add_system(config, name, title=f"{config.systems[system].title}, {share:g} x the words", share=share, **same)


def small_bfloat16(config: ml_collections.ConfigDict) -> None:
    """The same as "small", computed in bfloat16."""
    small(config)
    for system in config.systems.values():
        if is_trained(system):
            system.set = (*system.set, "model.dtype=bfloat16")


def base(config: ml_collections.ConfigDict) -> None:
    """The models' base sizes: bodies of some 90 million parameters, two billion words each."""
    config.title = "League of base models"
    config.corpora.train = ("{folder}/text/*.txt.gz",)
    config.budget.words = 2_000_000_000
    width = ("model.hidden=768", "model.heads=12")
    learning = ("optim.learning_rate=3e-4", "optim.b2=0.98", "data.batch_size=512", "data.accumulation=1",
                "model.dtype=bfloat16")  # fmt: skip
    layers = (*width, "model.layers=12", "model.ffn=3072", "data.max_length=256")  # 7.1 million a layer, 85 in all
    lists = ("text.splitter=rules", "text.pieces=30000", "text.terms=30001", "text.chars=1000")
    spelled = (  # its CNN and highways have 18.6 million
        "text.splitter=rules", "text.lowercase=False", "text.mlm_words=30000", *width, "model.layers=9",
        "model.max_positions=256", "data.max_length=256",
    )  # fmt: skip
    words = (  # 7.9 million a layer between words, 5.9 inside
        "text.splitter=rules", *width, "model.intra_layers=4", "model.inter_layers=8", "model.inter_ffn=2816",
        "data.max_words=256",
    )  # fmt: skip
    module = ("data.max_length=256", "text.splitter=rules", "contextual.batch_size=512", "contextual.accumulation=1")
    _systems(config, _Size(learning, layers, lists, spelled, words, module, (), positions=256, pieces=30_000))
    _tasks(config, ("optim.learning_rate=5e-5", "train.patience=3"), epochs=10)


def _learning(rate: str, sequences: int) -> tuple[str, ...]:
    """Returns settings with which narrow models learn."""
    return (
        f"optim.learning_rate={rate}", "optim.b2=0.98", "model.initializer=lecun", "model.dropout=0.0",
        "model.attention_dropout=0.0", f"data.batch_size={sequences}", "data.accumulation=1",
    )  # fmt: skip


def _systems(config: ml_collections.ConfigDict, size: _Size) -> None:
    """Adds all systems of a size."""
    plain = _plain(size, *size.layers, *size.learning)
    rows = f"model.max_positions={size.positions}"
    add_system(config, "bert", title="BERT", config="charbert_base:advbert", set=(*plain, rows))
    add_system(
        config, "roberta", title="RoBERTa-style", config="charbert_base:advbert+roberta", subwords="bytes:roberta",
        pieces=size.pieces, set=(*plain, f"model.max_positions={size.positions + 2}"),
    )  # fmt: skip
    add_system(
        config, "roformer", title="BERT, rotary positions", config="charbert_base:advbert+roformer", set=(*plain, rows)
    )
    spelled = (*size.spelled, *size.learning)
    add_system(config, "characterbert", title="CharacterBERT", config="characterbert_base", set=spelled)
    add_system(
        config, "characterbert-rotary", title="CharacterBERT, rotary positions", config="characterbert_base",
        set=(*spelled, "model.position=rotary"),
    )  # fmt: skip
    words = (*size.words, *size.learning)
    add_system(config, "hlm", title="HLM", config="hlm_base", set=words)
    add_system(
        config, "hlm-released", title="HLM, released wiring", config="hlm_base", set=(*words, "model.wiring=reference")
    )
    _retrofits(config, size)
    _other_uses(config)
    config.claims = _CLAIMS


def _plain(size: _Size, *settings: str) -> tuple[str, ...]:
    """Returns settings with which CharBERT's objective is BERT's: no noise, and BERT's share of masked subwords."""
    return ("data.noise_rate=0.0", "data.mask_rate=0.15", *size.lists, *settings)


def _retrofits(config: ml_collections.ConfigDict, size: _Size, rotary: bool = False) -> None:
    """Adds what goes on from a BERT, or, if `rotary`, from the one with rotary positions."""
    start = "roformer" if rotary else "bert"
    suffix, said = "-rotary" * rotary, ", rotary positions" * rotary
    later = (*size.layers, *size.learning, "optim.learning_rate=3e-4")
    rows = f"model.max_positions={size.positions}"
    add_system(
        config, f"bert-longer{suffix}", title=f"BERT{said}, longer",
        config="charbert_base:advbert" + "+roformer" * rotary, start=start, share=0.25,
        set=(*_plain(size, *later), rows),
    )  # fmt: skip
    add_system(  # CharBERT's paper's own rival: the misspelled text that CharBERT reads, and no characters
        config, f"advbert{suffix}", title=f"AdvBERT{said}", config="charbert_base:advbert" + "+roformer" * rotary,
        start=start, share=0.25, set=(*size.lists, *later, rows),
    )  # fmt: skip
    add_system(
        config, f"charbert{suffix}", title=f"CharBERT{said}", config="charbert_base" + ":roformer" * rotary,
        start=start, share=0.25, set=(*size.lists, *later, rows),
    )  # fmt: skip
    add_system(
        config, f"char2subword{suffix}", title=f"Char2Subword{said}", config="char2subword_base", start=start,
        share=0.25, stage="contextual", set=size.module,
    )  # fmt: skip
    add_system(
        config, f"xrayemb{suffix}", title=f"XRayEmb{said}", config="xrayemb_base", start=start, share=0.25,
        set=(*later, *size.spelling, rows),
    )  # fmt: skip


def _other_uses(config: ml_collections.ConfigDict) -> None:
    """Adds systems that share a pre-trained model and differ in how it is tuned, or in what corrects its input."""
    add_system(
        config, "char2subword-full", title="Char2Subword, full mode", same="char2subword", tune=("model.mode=full",)
    )
    typos = ("data.noise=" + ",".join(_TYPOS), "data.noise_share=0.5")
    for name in ("bert", "roformer", "characterbert-rotary", "hlm"):
        title = f"{config.systems[name].title}, tuned on typos"
        add_system(config, f"{name}-typos", title=title, same=name, tune=typos)
    for name in ("bert", "roformer"):
        title = f"{config.systems[name].title} behind SymSpell"
        add_system(config, f"{name}+symspell", title=title, behind=name, defence="symspell")


def _tasks(config: ml_collections.ConfigDict, tuning: tuple[str, ...], epochs: int, **of_task: int) -> None:
    """Adds all tasks; `tuning` are settings of fine-tuning, `of_task` the epochs of tasks that have their own."""
    config.robustness.noise = _NOISES
    config.robustness.misspellings = "{folder}/misspell/natural_en.txt.gz"
    settings = lambda task: (*tuning, f"train.epochs={of_task.get(task, epochs)}")
    add_task(
        config, "pos", title="Parts of speech (UD EWT)", config="tag",
        train=("{folder}/pos/en_ewt-ud-train.conllu.gz",),
        measure=("{folder}/pos/en_ewt-ud-dev.conllu.gz",), set=("data.tag=upos", *settings("pos")),
    )  # fmt: skip
    add_task(
        config, "disease", title="Diseases (NCBI)", config="tag", train=("{folder}/ner/ncbi_disease_train.tsv.gz",),
        measure=("{folder}/ner/ncbi_disease_devel.tsv",), set=settings("disease"),
    )  # fmt: skip
    add_task(
        config, "entities", title="Entities (UNER)", config="tag", train=("{folder}/ner/uner_en_ewt-dev.iob2.gz",),
        set=settings("entities"),
    )  # fmt: skip
    emotions = ("data.text=0", "data.label=1", "data.header=no", "data.separator=,", "data.multi_label=first")
    add_task(
        config, "emotions", title="Emotions (GoEmotions)", config="classify",
        train=("{folder}/cls/goemotions_train.tsv.gz",), measure=("{folder}/cls/goemotions_dev.tsv.gz",),
        set=(*emotions, *settings("emotions")),
    )  # fmt: skip
    add_task(
        config, "coinages", title="Kinds of new words, alone (NYTWIT)", config="classify",
        train=("{folder}/nytwit/nytwit_v1-1_folds0-7.tsv",), measure_every=3,
        set=(
            "data.text=Word", "data.label=Category", "data.skip_labels=filtered", *settings("coinages"),
            "train.patience=0",  # so few words are set aside to choose the epoch by that they would end it by chance
        ),
    )  # fmt: skip
    pairs = ("data.label=0", "data.text=1", "data.pair=2", "data.header=no")
    add_task(
        config, "inference", title="Inference (SNLI, MNLI)", config="classify",
        train=("{folder}/cls/snli_1k.tsv", "{folder}/cls/mnli_matched_1k.tsv"), set=(*pairs, *settings("inference")),
    )  # fmt: skip
    add_task(
        config, "answers", title="Answers (SQuAD)", config="answer",
        train=("{folder}/qa/squad_v1.1_devset_devarticles.json.gz",),
        set=("data.max_length=128", "data.stride=48", "data.max_question=32", *settings("answers")),
    )  # fmt: skip


VARIANTS = {
    "tiny": tiny, "evening": evening, "curves": curves, "small": small, "small_bfloat16": small_bfloat16, "base": base,
}  # fmt: skip
