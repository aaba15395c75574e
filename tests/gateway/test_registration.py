"""Tools that no demonstration uses: a model that supports it ranks them by their descriptions."""

import anyio
import pytest

import dtdr
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.predict.model import Model
from dtdr.rankers.dtdr_f.factored import DTDRFactored
from tests.gateway.conftest import STRANGE, demonstrations
from tests.gateway.helpers import NAMES, gateway_client, names, stdio, until
from tests.helpers import RANKER_ONLY

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A dtdr-f that learned the servers' known tools, described."""
    tools = [Tool(name, description) for name, description in NAMES.items()]
    path = tmp_path_factory.mktemp("factored") / "model"
    dtdr.fit(demonstrations(12), tools, ranker="dtdr-f", **RANKER_ONLY).save(path)
    return path


async def test_a_tool_that_no_demonstration_uses_is_ranked_by_its_description(
    folder, served, tmp_path
):
    specs = [served["known"], served["strange"]]
    loaded = dtdr.load(folder)
    async with gateway_client(loaded, specs) as (client, gateway):
        assert gateway.catalog.unknown() == []
        meta = {"dtdr/intent": "give food to the goldfish"}
        shown = [tool.name for tool in (await client.list_tools(meta=meta)).tools]

    assert "feed_goldfish" in shown
    assert "paint_fence" not in shown
    loaded.save(tmp_path / "model")
    for model in (loaded, dtdr.load(tmp_path / "model")):
        ranking = model.rank("give food to the goldfish")
        added = ranking.calibration.added
        assert added is not None
        assert added[ranking.vocabulary.index("feed_goldfish")]
        assert not ranking.is_none_of_these


async def test_tools_are_registered_under_the_names_that_clients_see(folder, served):
    model = dtdr.load(folder)
    specs = [served["runs"], served["program"], served["ends"]]
    async with gateway_client(model, specs) as (client, gateway):
        assert gateway.catalog.unknown() == []
        assert model.index("runs__run") >= 0
        assert model.index("program__run") >= 0
        assert model.index("run") < 0
        assert model.index("feed_goldfish") >= 0
        result = await client.call_tool("ends__end", {"id": "1"})  # "end" is the end of a plan
        # Two, and a new tool in addition unless one is among them.
        assert len(await names(client)) in (2, 3)

    assert not result.is_error


async def test_a_model_that_refuses_new_tools_is_asked_once_and_ranks_on(served):
    class Refusing(DTDRFactored):
        asked = 0

        def change_tools(self, tools, names):
            Refusing.asked += 1
            raise InputError("no room")

    model = Model(Refusing()).fit(demonstrations(12), **RANKER_ONLY)
    specs = [served["known"], stdio("growing", special=True, names=STRANGE)]
    async with gateway_client(model, specs) as (client, gateway):
        assert Refusing.asked == 1
        assert len(await names(client)) == 2
        await client.call_tool("grow", {})
        await until(lambda: Refusing.asked == 2)
        await anyio.sleep(0.1)
        assert Refusing.asked == 2
        assert len(gateway.catalog.unknown()) == len(STRANGE) + 9
