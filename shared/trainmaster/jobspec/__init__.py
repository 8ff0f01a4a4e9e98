"""The job format: what a submitted document means, or everything that is wrong with it.

Nothing is imported here: who needs a table of runtimes does not need the models of documents.

    job_document
        read_document        bytes of a file, message or editor → the job file; converts a manifest
        job_file_of          the same, for a document that is already a mapping
        job_id_of            a job file → the job id that it names
        with_job_id          a job file → the same with another id; also with_time_in_job_id
    accept
        accept               a job file → spec, labels and plan
    reading.document_kinds
        detect_kind          a job file → which of the four kinds it is, and the API's resource
    reading.parse_document
        parse_document       bytes → a mapping, safely; for documents that are not jobs
    fields.job_id
        job_id_from          an object's name → a legal job id
    fields.exit_policy
        read_exit_policy     a mapping → an exit policy
    fields.labels
        read_labels          a mapping → labels

They raise `problems.InvalidJob` with every problem at once. Every entrance goes through the same
three steps, so that a document means the same everywhere: read_document (or job_file_of), an id,
accept. They differ where they must:

| entrance       | bytes      | the job is named by (*)           | kinds of documents            |
| submit, doctor | YAML, JSON | option, document, file name, time | all; options change fields    |
| upload         | YAML, JSON | document, file name, generation   | all                           |
| message        | YAML, JSON | document, displayName             | all                           |
| schedule       | YAML, JSON | document, file name; with a time  | all; --submit-as: AI_PLATFORM |
| console        | YAML, JSON | the form                          | all                           |
| API: submit    | YAML, JSON | document, file name; number (**)  | all                           |
| API: create    | JSON       | document; number (**)             | that of the URL; no manifests |

(*) The first one that there is. (**) The API gives a job of Vertex AI a number.

The Python client sends a file, or a mapping as JSON, to `submit`.

Sub-packages:

    formats    the document models, field for field; docs/job-format.md describes them
    reading    document → model: limits, kinds of documents, names, problems
    catalog    tables of machine types, TPUs, scale tiers, runtimes and regions
    fields     rules of single fields that both formats share
    machines   a role's request → its hardware
    resolve    model → ResolvedSpec, the meaning of a document in either format
    manifests  manifests of Kubeflow and JobSet → job files
    foreign    tasks of SkyPilot and dstack → the command and the job file that mean the same
"""
