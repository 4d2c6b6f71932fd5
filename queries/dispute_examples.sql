-- One row per row of `disputes`, with what the two sides of its example say around the first difference: 40 characters, or
-- 8 ids where a side has no text, either way. place is 0-based; null where one side refuses.
with

sides as (
    select
        disputes.*,
        own,
        said,
        shown_part(own, said, disputes.what, disputes.field) as part,
    from disputes
    inner join deciding as own
        on disputes.checkpoint = own.checkpoint
        and disputes.kind = own.kind
        and disputes.example = own.case_id
        and disputes.encoder is not distinct from own.encoder
        and coalesce(disputes.given, own.output_sha256) is not distinct from own.output_sha256
    inner join witness as said
        on disputes.checkpoint = said.checkpoint
        and disputes.kind = said.kind
        and disputes.example = said.case_id
        and disputes.engine = said.engine
        and disputes.last_version = said.engine_version
        and disputes.mode = said.mode
        and coalesce(disputes.given, said.output_sha256) is not distinct from said.output_sha256
),

placed as (
    select
        *,
        shown(own, part) as own_shown,
        shown(said, part) as said_shown,
        first_difference(own_shown, said_shown) as place,
    from sides
)

select
    placed.fingerprint,
    placed.kind,
    placed.field,
    placed.chunked,
    placed.status,
    placed.last_version,
    placed.cases,
    placed.example,
    placed.mode,
    placed.place,
    shown_side(placed.own, placed.own_shown, placed.part, placed.place) as reference_says,
    shown_side(placed.said, placed.said_shown, placed.part, placed.place) as engine_says,
from placed
inner join scope on placed.checkpoint = scope.checkpoint
order by scope.place, placed.kind, placed.engine, difference_rank(placed.what), placed.chunked, placed.field
