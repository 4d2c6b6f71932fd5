-- One row per file of a checkpoint: what is proved of it, and which of its own files were not obtained.
select
    materials.checkpoint,
    materials.file,
    materials.proof,
    materials.bytes,
    materials.sha256,
    materials.license,
    materials.note,
from materials
inner join scope on materials.checkpoint = scope.checkpoint
order by scope.place, materials.file, materials.proof
