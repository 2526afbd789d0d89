"""The pool: found when none is configured, filled in when one is, refused when nobody in it can
work.
"""

import re
from pathlib import Path

import pytest
from genai_prices.data_snapshot import get_snapshot

from fugu_cli.config import Config
from fugu_cli.config.agent_pool import (
    EMBEDDED,
    SERVICES,
    UnusableEntry,
    detected_keys,
    detected_pool,
    has_assumed_price,
    pool_variables,
    unready_services,
    unusable_entries,
    usable_pool,
)
from fugu_cli.config.loader import load_config, parse_layer
from fugu_cli.config.schema import AgentEntry
from fugu_cli.coordinators.skills import canonical_model, shipped_table
from fugu_cli.errors import ConfigError
from fugu_cli.session.events import Member, Price


def entry(name: str, **fields: object) -> AgentEntry:
    return AgentEntry.model_validate({"name": name, "provider": "openai", "model": name, **fields})


def test_without_keys_the_embedded_models_are_the_pool() -> None:
    members = [agent.member() for agent in usable_pool(Config(), {})]
    assert [(m.name, m.model, m.slot, m.price) for m in members] == [
        ("small", "qwen2.5-coder-0.5b", "cheap", Price(cached=0.0)),
        ("coder", "qwen2.5-coder-1.5b", "middle", Price(cached=0.0)),
    ]


def test_a_key_in_the_environment_brings_its_providers_agents() -> None:
    agents = usable_pool(Config(), {"ANTHROPIC_API_KEY": "k", "PATH": "/bin"})
    assert [(a.name, a.provider, a.slot, a.protocol, a.api_key_env) for a in agents] == [
        ("claude-haiku-5-5", "anthropic", "cheap", "native", "ANTHROPIC_API_KEY"),
        ("claude-sonnet-5-5", "anthropic", "middle", "native", "ANTHROPIC_API_KEY"),
        ("claude-opus-5-5", "anthropic", "strong", "native", "ANTHROPIC_API_KEY"),
    ]


def test_the_models_chosen_for_each_service_have_a_known_price_that_rises_with_the_slot() -> None:
    for service in (one for one in SERVICES if one.models):
        agents = usable_pool(Config(), {service.variable: "k", "AWS_REGION": "us-east-1"})
        assert [agent.slot for agent in agents] == [slot for slot, _ in service.models]
        costs = [(a.price.input * 3 + a.price.output) if a.price else None for a in agents]
        known = [cost for cost in costs if cost is not None]
        assert len(known) == len(costs) and known == sorted(known), (service.variable, costs)


def test_no_model_that_a_service_brings_is_deprecated() -> None:
    def is_deprecated(provider_id: str, model: str, base_url: str) -> bool:
        return any(
            listed.deprecated and listed.is_match(model)
            for provider in get_snapshot().providers
            for listed in provider.models
            if re.match(provider.api_pattern, base_url) or provider.id == provider_id
        )

    assert is_deprecated("", "kimi-k2.5", "https://api.moonshot.ai/v1")
    for service in SERVICES:
        provider_id = "" if service.base_url else service.provider
        for _, model in service.models:
            assert not is_deprecated(provider_id, model, service.base_url), (service.name, model)


def test_a_dearer_model_of_a_service_is_not_known_to_be_weaker() -> None:
    skills = shipped_table().models
    for service in SERVICES:
        models = [canonical_model(model)[0] for _, model in service.models]
        known = [skills[model][0] for model in models if model in skills]
        assert known == sorted(known), (service.name, models)


def test_names_stay_unique_with_every_key_set() -> None:
    everything = {service.variable: "k" for service in SERVICES}
    names = [agent.name for agent in detected_pool({**everything, "AWS_REGION": "us-east-1"})]
    assert len(names) == len(set(names)) == sum(len(service.models) for service in SERVICES)
    assert detected_keys(everything) == tuple(everything)


def test_slots_follow_prices_and_a_named_slot_stays() -> None:
    entries = (
        entry("a", base_url="http://x/v1", price={"input": 0.1, "output": 0.1}),
        entry("b", base_url="http://x/v1", price={"input": 1.0, "output": 1.0}),
        entry("c", base_url="http://x/v1", price={"input": 10.0, "output": 10.0}),
        entry("d", base_url="http://x/v1", slot="cheap", price={"input": 9.0, "output": 9.0}),
        entry("unpriced", base_url="http://x/v1"),
    )
    slots = {agent.name: agent.slot for agent in usable_pool(Config(agents=entries), {})}
    assert slots == {"a": "cheap", "b": "middle", "c": "strong", "d": "cheap", "unpriced": "middle"}


def test_an_entry_has_the_context_of_the_same_model_found_by_its_key() -> None:
    service = next(one for one in SERVICES if one.variable == "ANTHROPIC_API_KEY")
    entries = tuple(entry(model, provider="anthropic") for _, model in service.models)
    environ = {service.variable: "k"}
    written, found_here = (
        usable_pool(Config(agents=entries), environ),
        usable_pool(Config(), environ),
    )
    assert (
        [agent.context for agent in written]
        == [agent.context for agent in found_here]
        == [1_000_000] * 3
    )
    elsewhere = entry("claude-opus-5-5", provider="anthropic", base_url="http://127.0.0.1:1/v1")
    (behind_gateway,) = usable_pool(Config(agents=(elsewhere,)), {})
    assert behind_gateway.context == 1_000_000
    assert has_assumed_price(behind_gateway, Config(agents=(elsewhere,)))


def test_open_weights_behind_an_own_address_have_the_price_that_all_their_sellers_ask() -> None:
    own = "https://models.example.org/v1"
    agreed = entry("agreed", model="glm-4.6", base_url=own)
    disputed = entry("disputed", model="gpt-oss-120b", base_url=own)
    near = entry("near", model="glm-4.6", base_url="http://127.0.0.1:1/v1")
    config = Config(agents=(agreed, disputed, near))
    pool = usable_pool(config, {})
    assert [agent.price is not None for agent in pool] == [True, False, False]
    assert [has_assumed_price(agent, config) for agent in pool] == [True, False, False]


def test_the_context_of_an_entry_is_the_price_lists_where_no_service_is_known_to_have_the_model() -> (
    None
):
    entries = (
        entry("known", model="grok-4.6", base_url="https://api.x.ai/v1"),
        entry("unknown", model="grok-0", base_url="https://api.x.ai/v1"),
        entry("near", model="qwen3-coder", base_url="http://127.0.0.1:1/v1"),
    )
    assert [agent.context for agent in usable_pool(Config(agents=entries), {})] == [
        500_000,
        128_000,
        128_000,
    ]


@pytest.mark.parametrize(
    ("key", "variable", "given", "address"),
    [
        ("OPENAI_API_KEY", "OPENAI_BASE_URL", "http://gw:1/v1/", "http://gw:1/v1"),
        ("OPENAI_API_KEY", "OPENAI_API_BASE", "http://gw:1/v1", "http://gw:1/v1"),
        ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "http://gw:1", "http://gw:1/v1"),
        ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "http://gw:1/v1", "http://gw:1/v1"),
        ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "http://gw:1", "http://gw:1/v1beta/openai"),
        ("DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL", "http://gw:1/v1", "http://gw:1/v1"),
    ],
)
def test_a_gateway_that_the_environment_names_gets_the_key_of_its_vendor(
    key: str, variable: str, given: str, address: str
) -> None:
    environ = {key: "k", variable: given}
    found = usable_pool(Config(), environ)
    assert usable_pool(Config(), pool_variables(Config(), environ)) == found
    assert {agent.base_url for agent in found} == {address}
    assert {agent.api_key_env for agent in found} == {key}
    assert all(agent.price is not None for agent in found) or key == "DEEPSEEK_API_KEY"
    provider = {"OPENAI_API_KEY": "openai", "ANTHROPIC_API_KEY": "anthropic"}.get(key)
    if provider is not None:
        written = Config(agents=(entry("a", provider=provider),))
        assert usable_pool(written, {key: "k", variable: given})[0].base_url == address


def test_a_key_of_bedrock_counts_with_a_region_and_is_sent_to_that_regions_address_alone() -> None:
    key = {"AWS_BEARER_TOKEN_BEDROCK": "k"}
    assert {agent.base_url for agent in detected_pool({**key, "AWS_REGION": "eu-west-1"})} == {
        "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1"
    }
    for region in ("", "x.example.org/", "us east", "US"):
        environ = {**key, "AWS_REGION": region}
        assert detected_pool(environ) == EMBEDDED
        assert [(one.name, one.variable) for one in unready_services(environ)] == [
            ("bedrock", *key)
        ]


def test_a_service_without_a_known_model_is_named_with_the_entry_that_is_missing() -> None:
    environ = {"DASHSCOPE_API_KEY": "k"}
    (unready,) = unready_services(environ)
    said, _, text = unready.reason.partition("\n")
    assert said == "DASHSCOPE_API_KEY is set; no model of it is known, so add one to ~/.fugurc:"
    (written,) = parse_layer(text, Path("/x/.fugurc")).config.agents
    assert usable_pool(Config(agents=(written,)), environ)[0].api_key_env == "DASHSCOPE_API_KEY"


def test_one_agent_alone_is_the_strong_one() -> None:
    (agent,) = usable_pool(Config(agents=(entry("only", base_url="http://localhost:1/v1"),)), {})
    assert agent.member() == Member(
        name="only",
        provider="openai",
        model="only",
        slot="strong",
        context=128_000,
        price=Price(),
        reasoning="within",
        address="localhost",
    )


def test_an_entry_without_its_key_is_left_out_with_the_reason() -> None:
    config = Config(agents=(entry("paid"), entry("near", base_url="http://localhost:8000/v1")))
    assert [agent.name for agent in usable_pool(config, {})] == ["near"]
    assert unusable_entries(config, {}) == (
        UnusableEntry("paid", "OPENAI_API_KEY is not set", "OPENAI_API_KEY"),
    )


def test_a_local_model_that_is_not_fetched_is_left_out_while_another_agent_is_able() -> None:
    absent = entry("here", provider="local", model="qwen2.5-coder-1.5b")
    near = entry("near", base_url="http://localhost:8000/v1")
    config = Config(agents=(absent, near))
    assert [agent.name for agent in usable_pool(config, {})] == ["near"]
    assert [found.reason for found in unusable_entries(config, {})] == [
        "not fetched: fugu models pull qwen2.5-coder-1.5b"
    ]
    for alone in (Config(agents=(absent,)), Config(agents=(absent, near), opt_out=("near",))):
        assert "here" in [agent.name for agent in usable_pool(alone, {})]


def test_a_pool_without_a_usable_agent_says_which_variable_to_set() -> None:
    config = Config(
        agents=(
            entry("paid"),
            entry("dear", provider="anthropic"),
            entry("own", api_key_env="MY_KEY"),
        )
    )
    with pytest.raises(ConfigError) as caught:
        usable_pool(config, {"MY_KEY": ""})
    assert str(caught.value) == (
        "no agent of the pool can be used: paid: OPENAI_API_KEY is not set; "
        "dear: ANTHROPIC_API_KEY is not set; own: MY_KEY is not set"
    )
    assert caught.value.hint.startswith("set OPENAI_API_KEY or ANTHROPIC_API_KEY or MY_KEY")


@pytest.mark.parametrize(
    ("config", "message", "hint"),
    [
        (
            Config(coordinator="single:codr"),
            "no agent or model named codr",
            "did you mean 'coder'?",
        ),
        (
            Config(opt_out=("nobody",)),
            "opt_out: no agent or model named nobody; the pool has small, coder",
            "fugu pool",
        ),
        (
            Config(opt_out=("small", "coder")),
            "every usable agent of the pool is opted out",
            "shorten",
        ),
        (
            Config(coordinator="single:small", opt_out=("small",)),
            "both pinned and opted out",
            "drop one",
        ),
        (
            Config(coordinator="single:p", agents=(entry("p"), entry("q", base_url="http://x/v1"))),
            "'p' cannot be used: OPENAI_API_KEY is not set",
            "fugu pool",
        ),
    ],
)
def test_a_name_that_is_not_in_the_pool_is_refused(config: Config, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        usable_pool(config, {})
    assert message in str(caught.value) and hint in caught.value.hint


def test_the_common_temperature_is_for_agents_that_name_none() -> None:
    config = Config(
        temperature=0.3,
        agents=(entry("a", base_url="http://x"), entry("b", base_url="http://x", temperature=0.9)),
    )
    assert [agent.temperature for agent in usable_pool(config, {})] == [0.3, 0.9]


@pytest.mark.parametrize(
    ("sees", "models"),
    [
        (
            True,
            "claude-opus-5 gpt-4o gpt-4-turbo gpt-5.3-codex o3 o4-mini google/gemini-3-flash "
            "qwen3-vl-8b",
        ),
        (
            True,
            "openai/gpt-5-mini grok-4 meta-llama/llama-4-scout pixtral-12b kimi-k2.5 glm-4.6v "
            "llava",
        ),
        (
            False,
            "claude-2.1 gpt-3.5-turbo gpt-4 gpt-oss-120b o1-mini o3-mini deepseek-v4 "
            "grok-code-fast-1 my-own",
        ),
        (False, "qwen3-coder llama-3.3-70b kimi-k2 glm-4.6 codestral-latest mistral-small-2402"),
    ],
)
def test_well_known_models_are_known_to_see_pictures_and_others_are_not(
    sees: bool, models: str
) -> None:
    agents = tuple(
        entry(f"a{number}", model=model, base_url="http://x")
        for number, model in enumerate(models.split())
    )
    assert {
        agent.model: agent.sees for agent in usable_pool(Config(agents=agents), {})
    } == dict.fromkeys(models.split(), sees)


@pytest.mark.parametrize(
    ("vendor", "models"),
    [
        ("anthropic", "claude-opus-5-5 anthropic/claude-sonnet-5.5"),
        (
            "openai",
            "gpt-6-luna global.openai.gpt-6-sol o3 o4-mini openai/gpt-oss-120b codex-mini-latest",
        ),
        ("google", "gemini-4-argon gemma-3-27b"),
        (
            "deepseek",
            "deepseek-v4-flash deepseek-ai/DeepSeek-V4-Pro-0813 DeepSeek-R1-Distill-Qwen-32B",
        ),
        ("alibaba", "qwen2.5-coder-1.5b.gguf /models/Qwen3-32B.gguf"),
        ("mistral", "mistral-medium-latest codestral-latest ministral-3b"),
        ("moonshot", "accounts/fireworks/models/kimi-k3"),
        ("zai", "zai-glm-4.7 glm-5.3"),
        ("", "my-own o1x llamas/granola"),
    ],
)
def test_a_well_known_model_says_who_made_it_whoever_serves_it(vendor: str, models: str) -> None:
    agents = tuple(
        entry(f"a{number}", model=model, base_url="http://x")
        for number, model in enumerate(models.split())
    )
    found = {agent.model: agent.member().vendor for agent in usable_pool(Config(agents=agents), {})}
    assert found == dict.fromkeys(models.split(), vendor)


def test_the_vendor_of_an_entry_counts_first_and_a_providers_own_model_is_its_own() -> None:
    agents = (
        entry("a", model="gpt-5", base_url="http://x", vendor=" Mine "),
        entry("b", model="gpt-5", base_url="http://x", vendor=""),
        entry("c", provider="anthropic", model="next-one", api_key_env="K"),
        entry("d", provider="scripted", model="claude/script.json"),
    )
    assert [agent.member().vendor for agent in usable_pool(Config(agents=agents), {"K": "k"})] == [
        "mine",
        "",
        "anthropic",
        "",
    ]


def test_what_an_entry_says_of_pictures_counts_and_only_models_with_tools_are_shown_any() -> None:
    agents = (
        entry("a", base_url="http://x", vision=True),
        entry("b", model="gpt-5", base_url="http://x", vision=False),
        entry("c", base_url="http://x", vision=True, protocol="text"),
        entry("d", base_url="http://x", vision=True, api="responses"),
    )
    members = [agent.member() for agent in usable_pool(Config(agents=agents), {})]
    assert [(member.vision, member.documents) for member in members] == [
        (True, False),
        (False, False),
        (False, False),
        (True, True),
    ]


def test_the_embedded_pool_is_made_of_models_that_exist() -> None:
    from fugu_cli.local.manifest import embedded_models

    assert {agent.model for agent in EMBEDDED} <= {model.name for model in embedded_models()}


def test_settings_of_agents_that_do_nothing_any_more_are_read_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".fugurc").write_text(
        '[[agents]]\nname = "a"\nprovider = "openai"\nmodel = "m"\nbase_url = "http://x/v1"\n'
        'protocol = "schema"\nattempts = 3\n'
    )
    (tmp_path / "repo").mkdir()
    loaded = load_config(tmp_path / "repo", {})
    assert [agent.member().protocol for agent in usable_pool(loaded.config, {})] == ["text"]
    assert len([note for note in loaded.notes if note.startswith("a: ")]) == 2
    (tmp_path / ".fugurc").write_text('coordinator = "single:coder-5x"\nopt_out = ["coder-5x"]\n')
    loaded = load_config(tmp_path / "repo", {})
    assert (loaded.config.coordinator, loaded.config.opt_out) == ("single:coder", ())
