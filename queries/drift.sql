-- One row per way in which an answer to one and the same case moved: from one release of an engine to the next (axis
-- `release`), and from another Git revision to this checkout (`revision`; needs `--against`), for engines, for gateways
-- (under every plan), and for every source of the reference. What a gateway's next release changed is in target_drift.sql.
-- what is the first difference, or: same; claim (a reference that proved nothing now does, or the reverse); appeared and
-- disappeared (an answer that was not there before, or is no more: not asked or not measured, which is no equality); null
-- where one side holds nothing to compare by.
with

steps as (
    select older.engine, older.engine_version as before, newer.engine_version as after
    from engines as older
    inner join engines as newer on older.engine = newer.engine and older.release_order + 1 = newer.release_order
),

older as (
    select evidence.*, steps.before, steps.after
    from evidence
    inner join steps on evidence.engine = steps.engine and evidence.engine_version = steps.before
    where evidence.mode = 'one-shot'
),

newer as (
    select evidence.*, steps.before, steps.after
    from evidence
    inner join steps on evidence.engine = steps.engine and evidence.engine_version = steps.after
    where evidence.mode = 'one-shot'
),

between_releases as (
    select
        'release' as axis,
        coalesce(older.engine, newer.engine) as subject,
        coalesce(older.before, newer.before) as before,
        coalesce(older.after, newer.after) as after,
        coalesce(older.checkpoint, newer.checkpoint) as checkpoint,
        coalesce(older.kind, newer.kind) as kind,
        coalesce(older.case_id, newer.case_id) as case_id,
        moved(older, newer) as what,
        message_field(older, newer) as field,
    from older
    full join newer
        on older.engine = newer.engine
        and older.after = newer.after
        and older.checkpoint = newer.checkpoint
        and older.kind = newer.kind
        and older.case_id = newer.case_id
        and coalesce(older.given, ''::blob) = coalesce(newer.given, ''::blob)
),

engines_before as (
    select evidence_before.*
    from evidence_before
    where mode = 'one-shot'
),

engines_now as (
    select evidence.*
    from evidence
    cross join against
    where evidence.mode = 'one-shot'
),

engines_between_revisions as (
    select
        'revision' as axis,
        coalesce(older.engine || '-' || older.engine_version, newer.engine || '-' || newer.engine_version) as subject,
        coalesce(older.checkpoint, newer.checkpoint) as checkpoint,
        coalesce(older.kind, newer.kind) as kind,
        coalesce(older.case_id, newer.case_id) as case_id,
        moved(older, newer) as what,
        message_field(older, newer) as field,
    from engines_before as older
    full join engines_now as newer
        on older.engine = newer.engine
        and older.engine_version = newer.engine_version
        and older.checkpoint = newer.checkpoint
        and older.kind = newer.kind
        and older.case_id = newer.case_id
        and coalesce(older.given, ''::blob) = coalesce(newer.given, ''::blob)
),

told_now as (
    select told.*
    from told
    cross join against
),

references_between_revisions as (
    select
        'revision' as axis,
        'reference ' || coalesce(older.source, newer.source) as subject,
        coalesce(older.checkpoint, newer.checkpoint) as checkpoint,
        coalesce(older.kind, newer.kind) as kind,
        coalesce(older.case_id, newer.case_id) as case_id,
        moved(older, newer) as what,
        message_field(older, newer) as field,
    from told_before as older
    full join told_now as newer
        on older.source = newer.source
        and older.checkpoint = newer.checkpoint
        and older.kind = newer.kind
        and older.case_id = newer.case_id
        and older.encoder = newer.encoder
),

gateways_now as (
    select observed.*
    from observed
    cross join against
    where observed.answer is not null
),

gateways_before as (
    select *
    from observed_before
    where answer is not null
),

gateways_between_revisions as (
    select
        'revision' as axis,
        coalesce(older.target, newer.target) as subject,
        coalesce(older.checkpoint, newer.checkpoint) as checkpoint,
        coalesce(older.kind, newer.kind) as kind,
        coalesce(older.case_id, newer.case_id) as case_id,
        moved(older, newer) as what,
        message_field(older, newer) as field,
    from gateways_before as older
    full join gateways_now as newer
        on older.target = newer.target
        and older.checkpoint = newer.checkpoint
        and older.kind = newer.kind
        and older.case_id = newer.case_id
        and older.mode = newer.mode
        and coalesce(older.given, ''::blob) = coalesce(newer.given, ''::blob)
),

moves as (
    select axis, subject, before, after, checkpoint, kind, case_id, what, field
    from between_releases
    union all
    select axis, subject, against.revision, 'checkout', checkpoint, kind, case_id, what, field
    from (
        from engines_between_revisions
        union all
        from gateways_between_revisions
        union all
        from references_between_revisions
    ) as revisions
    cross join against
)

select
    moves.axis,
    moves.subject,
    moves.before,
    moves.after,
    moves.checkpoint,
    moves.kind,
    moves.what,
    moves.field,
    count(distinct moves.case_id) as cases,
    min(moves.case_id) as example,
from moves
left join scope on moves.checkpoint = scope.checkpoint
left join engines on moves.subject = engines.engine and moves.after = engines.engine_version
group by engines.release_order, scope.place, moves.axis, moves.subject, moves.before, moves.after, moves.checkpoint,
    moves.kind, moves.what, moves.field
order by moves.axis, moves.subject, engines.release_order, scope.place nulls last, moves.checkpoint, moves.kind,
    difference_rank(moves.what) nulls last, moves.what, moves.field
