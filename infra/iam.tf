# Grants to service accounts and users. infra/grants.csv has them as rows, which a test compares with these files.

locals {
  # Topics that each function publishes to, besides the dead-letter topic.
  publishes = {
    upload       = ["submit"]
    submit       = ["provision", "tune", "job-state"]
    vm_ready     = ["provision", "tune", "job-state"]
    replica_exit = ["provision", "tune", "job-state"]
    maintenance  = ["provision", "tune", "job-state"]
    sweep        = ["provision", "tune", "job-state"]
    provision    = ["provision", "tune", "job-state"]
    tune         = ["provision", "tune", "job-state"]
    api          = ["provision", "tune", "job-state"]
  }

  # Functions that accept jobs: they look up what a job names.
  acceptors = toset(["upload", "submit", "api"])

  worker_topics = toset(["vm-ready", "replica-exit", "maintenance"])

  # Prefix of the bucket's objects in conditions.
  objects = "projects/_/buckets/${google_storage_bucket.this.name}/objects"
}

# `upload` reads job files and writes NAME.error.json next to them. It has no access to other objects.
resource "google_storage_bucket_iam_member" "upload" {
  bucket = google_storage_bucket.this.name
  role   = "roles/storage.objectUser"
  member = google_service_account.function["upload"].member

  condition {
    title      = "job files only"
    expression = "resource.name.startsWith('${local.objects}/jobs/')"
  }

  depends_on = [time_sleep.identities]
}

# The generations of a job's packages are looked up when it is accepted.
resource "google_storage_bucket_iam_member" "package_versions" {
  for_each = local.acceptors
  bucket   = google_storage_bucket.this.name
  role     = "roles/storage.objectViewer"
  member   = google_service_account.function[each.key].member

  condition {
    title      = "no job files"
    expression = "!resource.name.startsWith('${local.objects}/jobs/')"
  }

  depends_on = [time_sleep.identities]
}

# Cloud Storage answers 403 instead of 404 for a missing object to a caller who may not list. The permission is checked on the bucket,
# so it cannot have the condition above. It shows names, not contents.
resource "google_project_iam_custom_role" "object_lister" {
  role_id     = "${local.name}ObjectLister${var.role_suffix}"
  title       = "${local.title} object lister"
  description = "Finds out whether an object exists."
  permissions = ["storage.objects.list"]

  depends_on = [time_sleep.apis]
}

resource "google_storage_bucket_iam_member" "upload_lists" {
  bucket = google_storage_bucket.this.name
  role   = google_project_iam_custom_role.object_lister.id
  member = google_service_account.function["upload"].member

  depends_on = [time_sleep.identities]
}

# Whether what a job names exists is found out when it is accepted. The role shows metadata, and neither the values of secrets nor the contents of
# images and buckets. docs/decisions/0056-resources-before-vms.md
resource "google_project_iam_custom_role" "resource_viewer" {
  role_id     = "${local.name}ResourceViewer${var.role_suffix}"
  title       = "${local.title} resource viewer"
  description = "Finds out whether the resources that a job names exist."
  permissions = [
    "artifactregistry.tags.get",
    "artifactregistry.versions.get",
    "iam.serviceAccounts.get",
    "secretmanager.versions.get",
    "storage.buckets.get",
  ]

  depends_on = [time_sleep.apis]
}

resource "google_project_iam_member" "resource_viewer" {
  for_each = local.acceptors
  project  = var.project
  role     = google_project_iam_custom_role.resource_viewer.id
  member   = google_service_account.function[each.key].member

  depends_on = [time_sleep.identities]
}

# Only `provision` manages VMs, and it may act as the worker account only.
resource "google_project_iam_custom_role" "provisioner" {
  role_id     = "${local.name}Provisioner${var.role_suffix}"
  title       = "${local.title} provisioner"
  description = "Creates, directs and deletes training VMs."
  permissions = [
    "compute.disks.create",
    "compute.disks.setLabels",
    "compute.images.useReadOnly",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.getGuestAttributes",
    "compute.instances.getSerialPortOutput",
    "compute.instances.list",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
    "compute.networks.get",
    "compute.reservations.get",
    "compute.reservations.list",
    "compute.resourcePolicies.create",
    "compute.resourcePolicies.delete",
    "compute.resourcePolicies.get",
    "compute.resourcePolicies.use",
    "compute.subnetworks.use",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
    "compute.regionOperations.get",
  ]

  depends_on = [time_sleep.apis]
}

resource "google_project_iam_member" "provisioner" {
  project = var.project
  role    = google_project_iam_custom_role.provisioner.id
  member  = google_service_account.function["provision"].member

  # The names of all training VMs begin with "tm-". Other kinds of resources have no such names. It is unconfirmed whether a bulk
  # insert is checked with the names of its VMs; without a name it is permitted, and no existing VM has an empty name. `restrict_vm_names`
  # is the way out. (IAM has no condition that is simply true.)
  condition {
    title      = "training VMs only"
    expression = var.restrict_vm_names ? "resource.type != 'compute.googleapis.com/Instance' || resource.name.extract('/instances/{name}') == '' || resource.name.extract('/instances/{name}').startsWith('${local.vms}')" : "request.time > timestamp('2000-01-01T00:00:00Z')"
  }

  depends_on = [time_sleep.identities]
}

# A role of its own: if Google refuses its permission in custom roles, VMs can still be managed, and `capacity_advice = false` does without it.
resource "google_project_iam_custom_role" "capacity_adviser" {
  count       = var.capacity_advice ? 1 : 0
  role_id     = "${local.name}CapacityAdviser${var.role_suffix}"
  title       = "${local.title} capacity adviser"
  description = "Asks which zones have Spot VMs."
  permissions = ["compute.advice.capacity"]

  depends_on = [time_sleep.apis]
}

resource "google_project_iam_member" "capacity_adviser" {
  count   = var.capacity_advice ? 1 : 0
  project = var.project
  role    = google_project_iam_custom_role.capacity_adviser[0].id
  member  = google_service_account.function["provision"].member

  depends_on = [time_sleep.identities]
}

# Google's predefined role, which permits more than needed (it also starts and stops nodes). The names of the permissions for
# queued resources are not documented, and a custom role with a wrong name could not be created.
# docs/decisions/0021-tpu-queued-resources.md
resource "google_project_iam_member" "provisioner_tpu" {
  count   = var.tpu ? 1 : 0
  project = var.project
  role    = "roles/tpu.admin"
  member  = google_service_account.function["provision"].member

  depends_on = [time_sleep.identities]
}

# It looks for VMs that hang in the series that the agents write (docs/decisions/0037-silent-agents.md).
resource "google_project_iam_member" "provision_reads_metrics" {
  count   = var.metrics == "off" ? 0 : 1
  project = var.project
  role    = "roles/monitoring.viewer"
  member  = google_service_account.function["provision"].member

  depends_on = [time_sleep.identities]
}

resource "google_service_account_iam_member" "provision_acts_as_worker" {
  service_account_id = google_service_account.worker.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.function["provision"].member

  depends_on = [time_sleep.identities]
}

# A VM publishes its events to three topics, reads packages, and writes its job directory and logs.
resource "google_pubsub_topic_iam_member" "worker" {
  for_each = local.worker_topics
  topic    = google_pubsub_topic.this[each.key].id
  role     = "roles/pubsub.publisher"
  member   = google_service_account.worker.member

  depends_on = [time_sleep.identities]
}

# Job files contain the environment variables of all jobs.
resource "google_storage_bucket_iam_member" "worker_reads" {
  bucket = google_storage_bucket.this.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.worker.member

  condition {
    title      = "no job files"
    expression = "!resource.name.startsWith('${local.objects}/jobs/')"
  }

  depends_on = [time_sleep.identities]
}

# A VM downloads the agent, the built-in algorithms, and gcsfuse. Workers may not write there: a program could run code in other jobs.
resource "google_storage_bucket_iam_member" "worker_reads_agent" {
  bucket = google_storage_bucket.stage.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.worker.member

  condition {
    title      = "agents and tools only"
    expression = join(" || ", [for folder in ["agent", "algorithms", "tools"] : "resource.name.startsWith('projects/_/buckets/${google_storage_bucket.stage.name}/objects/${folder}/')"])
  }

  depends_on = [time_sleep.identities]
}

# With job files, a program could start jobs. With packages or the agent, it could run code in other jobs. With prices, it could lift limits.
resource "google_storage_bucket_iam_member" "worker_writes" {
  bucket = google_storage_bucket.this.name
  role   = "roles/storage.objectUser"
  member = google_service_account.worker.member

  condition {
    title      = "no job files, packages, agents or prices"
    expression = join(" && ", [for folder in ["jobs", "packages", "agent", "prices"] : "!resource.name.startsWith('${local.objects}/${folder}/')"])
  }

  depends_on = [time_sleep.identities]
}

resource "google_project_iam_member" "worker_logs" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.worker.member

  depends_on = [time_sleep.identities]
}

# The agents write the use of their VMs (docs/decisions/0070-resource-metrics.md). The role reads no time series.
resource "google_project_iam_member" "worker_metrics" {
  count   = var.metrics == "off" ? 0 : 1
  project = var.project
  role    = "roles/monitoring.metricWriter"
  member  = google_service_account.worker.member

  depends_on = [time_sleep.identities]
}

# Google cannot limit the run time of TPU nodes as it does for VMs. Their own hosts delete them (docs/decisions/0012-tpu-nodes.md).
# IAM cannot limit the permission to a host's own node.
resource "google_project_iam_custom_role" "tpu_fuse" {
  role_id     = "${local.name}TpuFuse${var.role_suffix}"
  title       = "${local.title} TPU fuse"
  description = "Lets the hosts of a TPU node delete it when its job no longer needs it."
  permissions = ["tpu.nodes.delete"]

  depends_on = [time_sleep.apis]
}

resource "google_project_iam_member" "worker_tpu_fuse" {
  count   = var.tpu ? 1 : 0
  project = var.project
  role    = google_project_iam_custom_role.tpu_fuse.id
  member  = google_service_account.worker.member

  depends_on = [time_sleep.identities]
}

# What `trainmaster ssh` and OS Login need of roles/compute.osLogin and roles/tpu.viewer. Those also list the VMs of the project, with their
# metadata: a condition on names does not restrict a list.
resource "google_project_iam_custom_role" "ssh_user" {
  count       = length(var.ssh_users) > 0 ? 1 : 0
  role_id     = "${local.name}SshUser${var.role_suffix}"
  title       = "${local.title} SSH user"
  description = "Finds a training VM by its name, and logs in to it."
  permissions = ["compute.instances.get", "compute.instances.osLogin", "compute.projects.get"]

  depends_on = [time_sleep.apis]
}

resource "google_project_iam_custom_role" "ssh_administrator" {
  count       = var.ssh_sudo && length(var.ssh_users) > 0 ? 1 : 0
  role_id     = "${local.name}SshAdministrator${var.role_suffix}"
  title       = "${local.title} SSH administrator"
  description = "Is an administrator on training VMs."
  permissions = ["compute.instances.osAdminLogin"]

  depends_on = [time_sleep.apis]
}

resource "google_project_iam_custom_role" "tpu_reader" {
  count       = var.tpu && length(var.ssh_users) > 0 ? 1 : 0
  role_id     = "${local.name}TpuReader${var.role_suffix}"
  title       = "${local.title} TPU reader"
  description = "Finds the TPU node of a replica and its hosts."
  permissions = ["tpu.nodes.get", "tpu.nodes.list"]

  depends_on = [time_sleep.apis]
}

resource "google_artifact_registry_repository_iam_member" "worker" {
  location   = google_artifact_registry_repository.this.location
  repository = google_artifact_registry_repository.this.name
  role       = "roles/artifactregistry.reader"
  member     = google_service_account.worker.member

  depends_on = [time_sleep.identities]
}

resource "google_artifact_registry_repository_iam_member" "worker_packages" {
  count      = var.package_mirror ? 1 : 0
  location   = google_artifact_registry_repository.packages[0].location
  repository = google_artifact_registry_repository.packages[0].name
  role       = "roles/artifactregistry.reader"
  member     = google_service_account.worker.member

  depends_on = [time_sleep.identities]
}

# Cloud Build builds the functions from the staged archives and stores their images. A build runs pip, so the account has access
# to nothing else. Source of the roles: "Custom service account for Cloud Build" of Cloud Run functions.
resource "google_project_iam_member" "builder_logs" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.builder.member

  depends_on = [time_sleep.identities]
}

resource "google_artifact_registry_repository_iam_member" "builder_images" {
  location   = google_artifact_registry_repository.functions.location
  repository = google_artifact_registry_repository.functions.name
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.builder.member

  depends_on = [time_sleep.identities]
}

resource "google_storage_bucket_iam_member" "builder_archives" {
  bucket = google_storage_bucket.stage.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.builder.member

  # A restore stores all jobs there, with their variables (docs/runbooks.md#restore).
  condition {
    title      = "no export of the database"
    expression = "!resource.name.startsWith('projects/_/buckets/${google_storage_bucket.stage.name}/objects/restore/')"
  }

  depends_on = [time_sleep.identities]
}

# Google copies each archive to a bucket that it creates at the first deployment. A grant on the bucket would come too early.
resource "google_project_iam_member" "builder_sources" {
  project = var.project
  role    = "roles/storage.objectViewer"
  member  = google_service_account.builder.member

  condition {
    title      = "bucket gcf-v2-sources only"
    expression = "resource.name.startsWith('projects/_/buckets/gcf-v2-sources-${data.google_project.this.number}-${var.region}/')"
  }

  depends_on = [time_sleep.identities]
}

# Tests of a commit (cloudbuild.yaml) run hundreds of third-party packages: the account has no other grant.
resource "google_project_iam_member" "tests_logs" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.tests.member

  depends_on = [time_sleep.identities]
}

# Users upload job files and packages, and publish job submissions. The function `api` checks its own permissions.
# Limits, budgets and maxCost are computed from the price list, so those whom they limit only read it. A job may already name a package that
# exists, so users create packages, but replace and delete none.
resource "google_storage_bucket_iam_member" "clients" {
  for_each = var.clients
  bucket   = google_storage_bucket.this.name
  role     = "roles/storage.objectUser"
  member   = each.key

  condition {
    title      = "no packages, agents or prices"
    expression = join(" && ", [for folder in ["packages", "agent", "prices"] : "!resource.name.startsWith('${local.objects}/${folder}/')"])
  }

  depends_on = [time_sleep.identities]
}

resource "google_storage_bucket_iam_member" "clients_read" {
  for_each = var.clients
  bucket   = google_storage_bucket.this.name
  role     = "roles/storage.objectViewer"
  member   = each.key

  condition {
    title      = "packages and prices only"
    expression = join(" || ", [for folder in ["packages", "prices"] : "resource.name.startsWith('${local.objects}/${folder}/')"])
  }

  depends_on = [time_sleep.identities]
}

resource "google_storage_bucket_iam_member" "clients_packages" {
  for_each = var.clients
  bucket   = google_storage_bucket.this.name
  role     = "roles/storage.objectCreator"
  member   = each.key

  condition {
    title      = "packages only"
    expression = "resource.name.startsWith('${local.objects}/packages/')"
  }

  depends_on = [time_sleep.identities]
}

# Callers of the API. The function asks Google whether the caller has these permissions on the account, with the caller's own token.
resource "google_service_account_iam_member" "api_users" {
  for_each           = var.api_users
  service_account_id = google_service_account.callers.name
  role               = "roles/iam.serviceAccountUser"
  member             = each.key

  depends_on = [time_sleep.identities]
}

resource "google_service_account_iam_member" "api_viewers" {
  for_each           = var.api_viewers
  service_account_id = google_service_account.callers.name
  role               = "roles/iam.serviceAccountViewer"
  member             = each.key

  depends_on = [time_sleep.identities]
}

# Who runs `trainmaster prices update`.
resource "google_storage_bucket_iam_member" "price_writers" {
  for_each = var.price_writers
  bucket   = google_storage_bucket.this.name
  role     = "roles/storage.objectUser"
  member   = each.key

  condition {
    title      = "price list only"
    expression = "resource.name.startsWith('${local.objects}/prices/')"
  }

  depends_on = [time_sleep.identities]
}

resource "google_pubsub_topic_iam_member" "clients" {
  for_each = var.clients
  topic    = google_pubsub_topic.this["submit"].id
  role     = "roles/pubsub.publisher"
  member   = each.key

  depends_on = [time_sleep.identities]
}
