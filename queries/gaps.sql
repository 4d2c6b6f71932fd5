-- One row per kind and key of a part (parser, renderer, tokenizer): which systems register it and by which names, which
-- checkpoints of the scope use it, and how many of their cases exercise it.
--
-- A key is the alias of a name (queries/aliases.toml), else the name, lower case, letters and digits only. The label is
-- the name that spells the key, of the first system that has it.
--
-- A case exercises a tool parser when its proved message has calls, a reasoning parser when it has a thought, a renderer
-- when its source gave a prompt, a tokenizer when its source gave ids or text. A case that is not recorded, or that the
-- reference refuses or cannot prove, exercises nothing.
--
-- status is the first that holds:
-- | gateway_missing | no gateway registers it, an engine or a fixture has it |
-- | covered         | a gateway registers it, and cases exercise it |
-- | gateway_only    | a gateway registers it, no engine does: there is nothing to compare with |
-- | engines_differ  | a gateway and one of the two engines register it: the other has nothing of this key |
-- | no_fixtures     | a gateway and both engines register it, and no case exercises it |
with

registered as (
    select
        registry.*,
        coalesce(aliases.key, regexp_replace(lower(registry.name), '[^a-z0-9]', '', 'g')) as key,
    from registry
    left join aliases
        on registry.kind = aliases.kind and registry.system = aliases.system and registry.name = aliases.name
),

used as (
    select distinct
        uses.kind,
        coalesce(aliases.key, regexp_replace(lower(uses.name), '[^a-z0-9]', '', 'g')) as key,
        uses.checkpoint,
        if(uses.system = 'source', uses.name, null) as source,
    from uses
    left join aliases on uses.kind = aliases.kind and uses.system = aliases.system and uses.name = aliases.name
),

-- a case counts when every encoder proves it
proved as (
    select
        checkpoint,
        kind,
        source,
        case_id,
        coalesce(bool_or(len(tool_calls) > 0), false) as has_calls,
        coalesce(bool_or(reasoning_content <> ''), false) as has_thought,
    from reference
    where is_judged(kind, source, normalisation)
    group by checkpoint, kind, source, case_id
    having bool_and(outcome = 'result')
),

deciding_parse as (
    select proved.*
    from proved
    semi join authority
        on proved.checkpoint = authority.checkpoint
        and proved.kind = authority.kind
        and proved.source = authority.source
        and authority.place = 0
    where proved.kind = 'parse'
),

exercised as (
    select 'tool' as kind, checkpoint, null as source, count(*) as cases
    from deciding_parse
    where has_calls
    group by checkpoint
    union all
    select 'reasoning', checkpoint, null, count(*)
    from deciding_parse
    where has_thought
    group by checkpoint
    union all
    select 'renderer', checkpoint, source, count(*)
    from proved
    where kind = 'render'
    group by checkpoint, source
    union all
    select 'tokenizer', checkpoint, source, count(*)
    from proved
    where kind in ('tokenize', 'detokenize')
    group by checkpoint, source
),

fixtures as (
    select
        used.kind,
        used.key,
        list(distinct used.checkpoint order by used.checkpoint) as fixtures,
        coalesce(sum(exercised.cases), 0)::bigint as cases,
    from used
    left join exercised
        on used.kind = exercised.kind
        and used.checkpoint = exercised.checkpoint
        and used.source is not distinct from exercised.source
    group by used.kind, used.key
),

cells as (
    select
        kind,
        key,
        list({'name': name, 'implementation': implementation} order by name)
            filter (where system = 'vllm') as vllm,
        list({'name': name, 'implementation': implementation} order by name)
            filter (where system = 'sglang') as sglang,
        list({'name': name, 'implementation': implementation} order by name)
            filter (where system = 'smg') as smg,
        list({'name': name, 'implementation': implementation} order by name)
            filter (where system = 'smg-symphony') as smg_symphony,
        count(distinct system) filter (where role = 'engine') as engines,
        count(distinct system) filter (where role = 'gateway') as gateways,
        arg_min(name, (regexp_replace(lower(name), '[^a-z0-9]', '', 'g') <> key, place, name)) as label,
    from registered
    group by kind, key
)

select
    coalesce(cells.kind, fixtures.kind) as kind,
    coalesce(cells.key, fixtures.key) as key,
    coalesce(cells.label, fixtures.key) as label,
    case
        when coalesce(cells.gateways, 0) = 0 then 'gateway_missing'
        when coalesce(fixtures.cases, 0) > 0 then 'covered'
        when cells.engines = 0 then 'gateway_only'
        when cells.engines = 1 then 'engines_differ'
        else 'no_fixtures'
    end as status,
    coalesce(cells.vllm, []) as vllm,
    coalesce(cells.sglang, []) as sglang,
    coalesce(cells.smg, []) as smg,
    coalesce(cells.smg_symphony, []) as smg_symphony,
    coalesce(fixtures.fixtures, []) as fixtures,
    coalesce(fixtures.cases, 0) as cases,
from cells
full join fixtures on cells.kind = fixtures.kind and cells.key = fixtures.key
order by list_position(['tool', 'reasoning', 'renderer', 'tokenizer'], coalesce(cells.kind, fixtures.kind)), 2
