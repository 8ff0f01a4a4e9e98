# Grants to service accounts and users. infra/README.md has them as a table, which a test compares with these files.

locals {
  # Topics that each function publishes to. All functions also publish to the dead-letter topic.
  publishes = {
    upload       = ["submit"]
    submit       = ["provision", "tune"]
    vm_ready     = ["provision", "tune"]
    replica_exit = ["provision", "tune"]
    maintenance  = ["provision", "tune"]
    sweep        = ["provision", "tune"]
    provision    = ["provision", "tune"]
    tune         = ["provision", "tune"]
    api          = ["provision", "tune"]
  }
  publications = merge([
    for name, topics in local.publishes : { for topic in topics : "${name}-${topic}" => { function = name, topic = topic } }
  ]...)

  # All functions except `upload` write to the database.
  stateful = toset([for name in keys(local.functions) : name if name != "upload"])

  worker_topics = toset(["vm-ready", "replica-exit", "maintenance"])
}

resource "google_pubsub_topic_iam_member" "function" {
  for_each = local.publications
  topic    = google_pubsub_topic.this[each.value.topic].id
  role     = "roles/pubsub.publisher"
  member   = google_service_account.function[each.value.function].member
}

resource "google_pubsub_topic_iam_member" "function_dead_letter" {
  for_each = local.functions
  topic    = google_pubsub_topic.dead_letter.id
  role     = "roles/pubsub.publisher"
  member   = google_service_account.function[each.key].member
}

resource "google_project_iam_member" "state" {
  for_each = local.stateful
  project  = var.project
  role     = "roles/datastore.user"
  member   = google_service_account.function[each.key].member
}

# `upload` checks whether a job id is in use, and reads the trials of a tuning job that a new one continues.
resource "google_project_iam_member" "upload_reads" {
  project = var.project
  role    = "roles/datastore.viewer"
  member  = google_service_account.function["upload"].member
}

# Trainmaster's own lines in a job's log.
resource "google_project_iam_member" "function_logs" {
  for_each = local.functions
  project  = var.project
  role     = "roles/logging.logWriter"
  member   = google_service_account.function[each.key].member
}

# `upload` reads job files and writes NAME.error.json next to them. It has no access to other objects.
resource "google_storage_bucket_iam_member" "upload" {
  bucket = google_storage_bucket.this.name
  role   = "roles/storage.objectUser"
  member = google_service_account.function["upload"].member

  condition {
    title      = "job files only"
    expression = "resource.name.startsWith('projects/_/buckets/${google_storage_bucket.this.name}/objects/jobs/')"
  }
}

# Only `provision` manages VMs, and it may act as the worker account only.
resource "google_project_iam_custom_role" "provisioner" {
  role_id     = "trainmasterProvisioner"
  title       = "Trainmaster provisioner"
  description = "Creates, directs and deletes training VMs."
  permissions = [
    "compute.disks.create",
    "compute.disks.setLabels",
    "compute.images.useReadOnly",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
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

  depends_on = [google_project_service.this]
}

resource "google_project_iam_member" "provisioner" {
  project = var.project
  role    = google_project_iam_custom_role.provisioner.id
  member  = google_service_account.function["provision"].member
}

# Google's predefined role, which permits more than needed (it also starts and stops nodes). The names of the permissions for
# queued resources are not documented, and a custom role with a wrong name could not be created.
# docs/decisions/0021-tpu-queued-resources.md
resource "google_project_iam_member" "provisioner_tpu" {
  project = var.project
  role    = "roles/tpu.admin"
  member  = google_service_account.function["provision"].member
}

resource "google_service_account_iam_member" "provision_acts_as_worker" {
  service_account_id = google_service_account.worker.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.function["provision"].member
}

# A VM publishes its events to three topics, reads packages, and writes its job directory and logs.
resource "google_pubsub_topic_iam_member" "worker" {
  for_each = local.worker_topics
  topic    = google_pubsub_topic.this[each.key].id
  role     = "roles/pubsub.publisher"
  member   = google_service_account.worker.member
}

resource "google_storage_bucket_iam_member" "worker_reads" {
  bucket = google_storage_bucket.this.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.worker.member
}

# Workers may write everything except job files. With job files, a program could start jobs.
resource "google_storage_bucket_iam_member" "worker_writes" {
  bucket = google_storage_bucket.this.name
  role   = "roles/storage.objectUser"
  member = google_service_account.worker.member

  condition {
    title      = "no job files"
    expression = "!resource.name.startsWith('projects/_/buckets/${google_storage_bucket.this.name}/objects/jobs/')"
  }
}

resource "google_project_iam_member" "worker_logs" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.worker.member
}

# Google cannot limit the run time of TPU nodes as it does for VMs. Their own hosts delete them (docs/decisions/0012-tpu-nodes.md).
# IAM cannot limit the permission to a host's own node.
resource "google_project_iam_custom_role" "tpu_fuse" {
  role_id     = "trainmasterTpuFuse"
  title       = "Trainmaster TPU fuse"
  description = "Lets the hosts of a TPU node delete it when its job no longer needs it."
  permissions = ["tpu.nodes.delete"]

  depends_on = [google_project_service.this]
}

resource "google_project_iam_member" "worker_tpu_fuse" {
  project = var.project
  role    = google_project_iam_custom_role.tpu_fuse.id
  member  = google_service_account.worker.member
}

resource "google_artifact_registry_repository_iam_member" "worker" {
  location   = google_artifact_registry_repository.this.location
  repository = google_artifact_registry_repository.this.name
  role       = "roles/artifactregistry.reader"
  member     = google_service_account.worker.member
}

# Cloud Build builds the functions from the staged archives and stores their images.
resource "google_project_iam_member" "builder" {
  for_each = toset(["roles/logging.logWriter", "roles/artifactregistry.writer", "roles/storage.objectViewer"])
  project  = var.project
  role     = each.key
  member   = google_service_account.builder.member
}

# Users upload job files and packages, and publish job submissions. The function `api` checks its own permissions.
resource "google_storage_bucket_iam_member" "clients" {
  for_each = var.clients
  bucket   = google_storage_bucket.this.name
  role     = "roles/storage.objectUser"
  member   = each.key
}

resource "google_pubsub_topic_iam_member" "clients" {
  for_each = var.clients
  topic    = google_pubsub_topic.this["submit"].id
  role     = "roles/pubsub.publisher"
  member   = each.key
}
