-- One row per corpus, kind and set: cases an importer dropped as repeats; and one per reason: rows it could make no
-- case of. A repeat's reason is the case it repeats.
with

dropped as (
    select
        corpus, kind, set, count(*) as repeats, 0 as left_out,
        min(name) as example, arg_min(repeats.repeats, name) as example_reason,
    from repeats
    group by corpus, kind, set
),

unmade as (
    select
        corpus, kind, set, 0 as repeats, count(*) as left_out,
        min(row) as example, reason as example_reason,
    from left_out
    group by corpus, kind, set, reason
),

both_lists as (
    select * from dropped
    union all
    select * from unmade
)

select corpus, kind, set, repeats, left_out, example, example_reason
from both_lists
order by all
