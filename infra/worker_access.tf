# Grants to programs on the workers, in addition to those on the installation's own bucket and registry. Every program that runs as the
# worker account gets them, regardless of who submitted the job. For data of one team, use a separate service account. docs/security.md

variable "worker_read_buckets" {
  description = "Buckets of this or other projects whose objects every job may read, such as my-data. They may contain the packages of jobs."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for name in var.worker_read_buckets : can(regex("^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$", name))])
    error_message = "worker_read_buckets must contain names of buckets without gs:// and without a path, such as my-data."
  }
}

variable "worker_write_buckets" {
  description = "Buckets of this or other projects whose objects every job may read, write and delete, such as my-models. They may contain the packages of jobs."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for name in var.worker_write_buckets : can(regex("^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$", name))])
    error_message = "worker_write_buckets must contain names of buckets without gs:// and without a path, such as my-models."
  }

  # With this access, a program could write job files to the installation's bucket, replace the agent of all VMs in the stage bucket or the
  # code of a function in the bucket of Cloud Functions, or change what Terraform believes to exist.
  validation {
    condition     = alltrue([for name in var.worker_write_buckets : !can(regex("-trainmaster(-stage|-terraform)?$|^${var.project}-tm[a-z0-9]{2,11}(-stage)?$|^gcf-v2-", name))])
    error_message = "worker_write_buckets must not contain a bucket of an installation, of its Terraform state or of its functions: workers already have write access to the first, except where it would let them start jobs."
  }
}

variable "worker_registries" {
  description = "Repositories of Artifact Registry, in this or other projects, from which VMs may pull images: projects/P/locations/L/repositories/R."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for name in var.worker_registries : can(regex("^projects/[^/]+/locations/[^/]+/repositories/[^/]+$", name))])
    error_message = "worker_registries must contain names like projects/my-project/locations/us-central1/repositories/training."
  }
}

variable "worker_project_roles" {
  description = "Further roles of the worker account: project => roles, such as { my-data = [\"roles/bigquery.dataViewer\", \"roles/bigquery.jobUser\"] }."
  type        = map(set(string))
  default     = {}

  validation {
    condition     = alltrue(flatten([for roles in values(var.worker_project_roles) : [for role in roles : can(regex("^(roles/|projects/[^/]+/roles/|organizations/[^/]+/roles/)[A-Za-z0-9_.]+$", role))]]))
    error_message = "worker_project_roles must contain names of roles, such as roles/bigquery.dataViewer."
  }

  validation {
    condition     = alltrue(flatten([for roles in values(var.worker_project_roles) : [for role in roles : !contains(["roles/owner", "roles/editor", "roles/viewer", "roles/admin", "roles/writer", "roles/reader"], role)]]))
    error_message = "worker_project_roles must not contain basic roles (roles/owner, editor, viewer, admin, writer, reader): every program could then use everything in the project. Name the roles of the services that programs use."
  }

  # Google also accepts a project's number, under which the installation's own project would count as another one.
  validation {
    condition     = alltrue([for project in keys(var.worker_project_roles) : can(regex("^[a-z][a-z0-9.:-]*[a-z0-9]$", project))])
    error_message = "worker_project_roles must name projects by their ids, such as my-data."
  }

  validation {
    # An allow list: with VMs' tokens of the scope cloud-platform, a role of any other service may reach the control plane. roles/aiplatform.user,
    # for example, is what the function `api` asks of its callers.
    condition     = alltrue([for role in lookup(var.worker_project_roles, var.project, []) : can(regex("^roles/(bigquery[.](dataEditor|dataViewer|jobUser|metadataViewer|readSessionUser|user)|bigtable[.](reader|user|viewer)|spanner[.](databaseReader|databaseUser|viewer)|cloudsql[.](client|instanceUser|viewer)|alloydb[.](client|databaseUser|viewer)|cloudtrace[.]agent|cloudprofiler[.]agent|errorreporting[.]writer|monitoring[.]viewer)$|^(projects|organizations)/", role))])
    error_message = "worker_project_roles may contain, for the installation's own project, only roles on data and reports (BigQuery, Bigtable, Spanner, Cloud SQL, AlloyDB, Cloud Trace, Cloud Profiler, Error Reporting, monitoring.viewer) and custom roles: with others, such as roles/datastore.user or roles/aiplatform.user, every program could then do what the functions do, or change all jobs. Grant a role on one resource instead, such as a topic of your own, outside of this variable."
  }
}

resource "google_storage_bucket_iam_member" "worker_reads_more" {
  for_each = var.worker_read_buckets
  bucket   = each.key
  role     = "roles/storage.objectViewer"
  member   = google_service_account.worker.member

  depends_on = [time_sleep.identities]
}

resource "google_storage_bucket_iam_member" "worker_writes_more" {
  for_each = var.worker_write_buckets
  bucket   = each.key
  role     = "roles/storage.objectUser"
  member   = google_service_account.worker.member

  depends_on = [time_sleep.identities]
}

# Jobs may have their packages in these buckets. A bucket to which
# workers write is one of them because `--job-dir` decides where clients upload packages.
locals {
  package_buckets = setunion(var.worker_read_buckets, var.worker_write_buckets)
}

resource "google_storage_bucket_iam_member" "packages_elsewhere" {
  for_each = { for pair in setproduct(local.acceptors, local.package_buckets) : "${pair[0]}=${pair[1]}" => { function = pair[0], bucket = pair[1] } }
  bucket   = each.value.bucket
  role     = "roles/storage.objectViewer"
  member   = google_service_account.function[each.value.function].member

  depends_on = [time_sleep.identities]
}

resource "google_artifact_registry_repository_iam_member" "worker_pulls_more" {
  for_each   = var.worker_registries
  project    = split("/", each.key)[1]
  location   = split("/", each.key)[3]
  repository = split("/", each.key)[5]
  role       = "roles/artifactregistry.reader"
  member     = google_service_account.worker.member

  depends_on = [time_sleep.identities]
}

resource "google_project_iam_member" "worker_roles" {
  for_each = { for pair in flatten([for project, roles in var.worker_project_roles : [for role in roles : { project = project, role = role }]]) : "${pair.project}=${pair.role}" => pair }
  project  = each.value.project
  role     = each.value.role
  member   = google_service_account.worker.member

  depends_on = [time_sleep.identities]
}
