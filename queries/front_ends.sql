-- One row per checkpoint, kind and vLLM release with both front ends asked: how many cases they answer alike (`same`),
-- or differently, and whose side the reference is on. Two front ends of one release that differ are a finding of their
-- own, whatever the reference says. Null in what: one side holds nothing to compare by.
with

pairs as (
    select
        python.checkpoint,
        python.kind,
        python.case_id,
        python.given,
        python.engine_version,
        difference(python, rust) as what,
        message_field(python, rust) as field,
    from evidence as python
    inner join evidence as rust
        on python.checkpoint = rust.checkpoint
        and python.kind = rust.kind
        and python.case_id = rust.case_id
        and coalesce(python.given, ''::blob) = coalesce(rust.given, ''::blob)
        and python.engine_version = rust.engine_version
    where python.engine = 'vllm' and rust.engine = 'vllm-rust' and python.mode = 'one-shot' and rust.mode = 'one-shot'
),

-- every answer of the reference (of two encoders both) agrees
agreeing as (
    select checkpoint, kind, case_id, engine, engine_version
    from compared
    where mode = 'one-shot' and engine in ('vllm', 'vllm-rust')
    group by checkpoint, kind, case_id, engine, engine_version
    having bool_and(coalesce(agrees, false))
),

claimed as (
    select distinct checkpoint, kind, case_id
    from claims
    where answer in ('result', 'refused')
),

sided as (
    select
        pairs.*,
        case
            when claimed.case_id is null then 'none'
            when python.engine is not null and rust.engine is not null then 'both'
            else coalesce(python.engine, rust.engine, 'neither')
        end as reference_agrees_with,
    from pairs
    left join claimed
        on pairs.checkpoint = claimed.checkpoint and pairs.kind = claimed.kind and pairs.case_id = claimed.case_id
    left join (select * from agreeing where engine = 'vllm') as python
        on pairs.checkpoint = python.checkpoint
        and pairs.kind = python.kind
        and pairs.case_id = python.case_id
        and pairs.engine_version = python.engine_version
    left join (select * from agreeing where engine = 'vllm-rust') as rust
        on pairs.checkpoint = rust.checkpoint
        and pairs.kind = rust.kind
        and pairs.case_id = rust.case_id
        and pairs.engine_version = rust.engine_version
)

select
    sided.checkpoint,
    sided.kind,
    sided.engine_version,
    sided.what,
    sided.field,
    sided.reference_agrees_with,
    count(distinct sided.case_id) as cases,
    min(sided.case_id) as example,
from sided
inner join scope on sided.checkpoint = scope.checkpoint
group by scope.place, sided.checkpoint, sided.kind, sided.engine_version, sided.what, sided.field,
    sided.reference_agrees_with
order by scope.place, sided.kind, sided.engine_version, difference_rank(sided.what), sided.what, sided.field,
    sided.reference_agrees_with
