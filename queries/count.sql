-- One row per checkpoint: how many references there are of each kind, and how well its tokenizer and template are proved.
with

answered as (
    select checkpoint, kind, case_id, min(outcome) as outcome, min(reason_class) as reason_class
    from deciding
    group by checkpoint, kind, case_id
),

counted as (
    select
        checkpoint,
        count(*) filter (where kind = 'render' and outcome = 'result') as render,
        count(*) filter (where kind = 'render' and reason_class = 'error') as render_refused,
        count(*) filter (where kind = 'parse' and outcome = 'result') as parse,
        count(*) filter (where kind = 'parse' and outcome = 'rejected') as parse_refused,
        count(*) filter (where kind in ('tokenize', 'detokenize') and outcome = 'result') as tokens,
    from answered
    group by checkpoint
),

proved as (
    select
        checkpoint,
        min(license) as license,
        max(proof) filter (where file = 'tokenizer.json' and bytes is not null) as tokenizer,
        -- the template stands in its own file or, for older checkpoints, inside tokenizer_config.json
        coalesce(
            max(proof) filter (where file = 'chat_template.jinja' and bytes is not null),
            max(proof) filter (where file = 'tokenizer_config.json' and bytes is not null)
        ) as template,
    from materials
    group by checkpoint
)

select
    scope.checkpoint,
    coalesce(counted.render, 0) as render,
    coalesce(counted.render_refused, 0) as "render refused",
    coalesce(counted.parse, 0) as parse,
    coalesce(counted.parse_refused, 0) as "parse refused",
    coalesce(counted.tokens, 0) as tokens,
    coalesce(proved.tokenizer, 'none') as "tokenizer.json",
    coalesce(proved.template, 'none') as template,
    coalesce(proved.license, '') as license,
from scope
left join counted on scope.checkpoint = counted.checkpoint
left join proved on scope.checkpoint = proved.checkpoint
order by scope.place
