"""What a step costs with frozen parameters: by hand, and as the compiler counts the same gradient."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from again import again

from charlm.core.frozen_cost import products, share_left
from charlm.core.optimizer import with_frozen, without_frozen
from charlm.families.subword.bert import Bert, BertConfig

IDS = np.ones((2, 32), np.int32)


@functools.cache
def bert(layers=3):
    """Returns a loss and the shapes of its parameters; nearly all its cost is in the products of the layers."""
    shape = {"hidden": 64, "heads": 2, "ffn": 256, "max_positions": 32, "vocab_size": 50}
    model = Bert(BertConfig(**shape, layers=layers, pooler=False, dropout=0.0, attention_dropout=0.0))
    loss = lambda params: jnp.square(model.apply({"params": params}, IDS, IDS > 0).states_BLD).sum()
    return loss, jax.eval_shape(lambda: model.init(jax.random.key(0), IDS, IDS > 0))["params"]


@functools.cache
def counted(freeze):
    """Returns the operations of the step that the compiler counts."""
    loss, params = bert()
    step = jax.value_and_grad(lambda trained, params: loss(with_frozen(trained, params)))
    return jax.jit(step).lower(without_frozen(params, freeze), params).cost_analysis()["flops"]


# Forward 3; of the layers, matrices behind trained parameters cost one pass for x and trained ones one for W.
@pytest.mark.parametrize(
    ("freeze", "passes"),
    [
        (("^embed/",), 3 * 3 - 0.3),  # the first layer's queries, keys and values need no gradient of x
        again(("layer_",), 3 * 2),
        (("^embed/", "layer_0/"), 3 + 2 * 2 - 0.3),
        again(("layer_2/",), 3 * 2 + 2),
        (("^embed/", "layer_[01]/"), 3 + 2 - 0.3),
    ],
    ids=["table", "layers", "table and a layer", "last layer", "all but the last layer"],
)
def test_frozen_parameters_save_the_passes_of_their_gradients(freeze, passes):
    loss, params = bert()
    share = share_left(loss, params, freeze)
    assert share == pytest.approx(passes / 9, abs=0.035)
    assert share == pytest.approx(counted(freeze) / counted(()), abs=0.03)


def test_nothing_frozen_costs_all():
    loss, params = bert(layers=1)
    assert share_left(loss, params, ()) == 1
    assert share_left(lambda params: params["x"].sum(), {"x": np.zeros(3), "y": np.zeros(1)}, ("y",)) == 1


def test_products_are_counted_wherever_they_are():
    x, w = np.ones((5, 4), np.float32), np.ones((4, 4), np.float32)
    own = 2 * 5 * 4 * 4
    count = lambda function: products(jax.make_jaxpr(function)(x, w).jaxpr)
    assert count(jnp.matmul) == count(jax.jit(jnp.matmul)) == count(jax.checkpoint(jnp.matmul)) == own
    assert count(lambda x, w: jax.lax.scan(lambda y, _: (y @ w, None), x, None, length=7)[0]) == 7 * own
    both = lambda x, w: jax.lax.cond(x[0, 0] > 0, lambda: x @ w @ w, lambda: x @ w)
    assert count(both) == 2 * own
    kernel = np.ones((3, 4, 6), np.float32)  # a window of three positions, four features in, six out
    convolved = lambda x, w: jax.lax.conv_general_dilated(
        x[None], kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
    )
    assert count(convolved) == 2 * 5 * 6 * 3 * 4
