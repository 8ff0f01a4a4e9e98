variable "project" {
  description = "Id (not number) of the project that Trainmaster is installed in."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "project must be a project id: 6 to 30 lower-case letters, digits and hyphens, such as my-project."
  }
}

variable "installation" {
  description = "Name of this installation, if the project has several: 2 to 11 lower-case letters and digits. The names of all that it owns begin with tmNAME in place of trainmaster. A name cannot be changed. Empty: the installation without a name."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^([a-z0-9]{2,11})?$", var.installation))
    error_message = "installation must have 2 to 11 lower-case letters and digits, such as staging."
  }
}

variable "region" {
  description = "Region of functions, database and bucket, and of jobs unless worker_regions names others."
  type        = string
}

variable "labels" {
  description = "Labels of all resources that can have some, such as the cost centre that the organisation requires. VMs have the labels of their job."
  type        = map(string)
  default     = {}

  validation {
    condition = alltrue([
      for key, value in var.labels :
      can(regex("^[a-z][a-z0-9_-]{0,62}$", key)) && can(regex("^[a-z0-9_-]{0,63}$", value))
    ])
    error_message = "labels must have keys and values of up to 63 lower-case letters, digits, _ and -, and keys begin with a letter, such as cost-centre = \"ml-4711\"."
  }
}

variable "notify" {
  description = "E-mail address for alerts and budget warnings."
  type        = string

  validation {
    condition     = can(regex("^[^@[:space:]]+@[^@[:space:]]+$", var.notify))
    error_message = "notify must be an e-mail address, such as platform@example.com."
  }
}

variable "gcsfuse" {
  description = "The program that gives jobs the folder /gcs: a file with gcsfuse 3 or later for Linux on x86-64, and its SHA-256 hash. null: jobs have no /gcs."
  type        = object({ file = string, sha256 = string })
  default     = null
}

variable "stage" {
  description = "Folder with the agent, the algorithms and one archive per function; `make stage` builds it."
  type        = string
  default     = "../build/stage"
}

variable "limits" {
  description = "Limits for all jobs together, such as { vcpus = 450, nvidia-tesla-t4 = 8, disk_gib = 20000 }. Further jobs are queued. run_hours bounds the run time of each job, usd_per_hour what all jobs cost per hour at list prices. \"team:NAME\" is the weight of the jobs with the label team=NAME in the queue, at least 1. Empty: no limits."
  type        = map(number)
  default     = {}

  validation {
    condition     = alltrue([for name, number in var.limits : number == floor(number) && number >= (startswith(name, "team:") ? 1 : 0) && can(regex("^(team:[a-z0-9_-]{1,63}|[^:=,]+)$", name))])
    error_message = "Limits are whole numbers from 0, and weights from 1: \"team:vision\" = 2 for the label team=vision."
  }
}

variable "allowed_resources" {
  description = "Resources that every job may name, such as secret=projects/my-project/secrets/key. Kinds: service_account, network, image, reservation, kms_key, secret. A job that names any other resource must be submitted through the API."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for entry in var.allowed_resources : can(regex("^(service_account|network|image|reservation|kms_key|secret)=[^,*]+[*]?$", entry))])
    error_message = "Each entry is KIND=NAME; a * may only be the last character."
  }
}

variable "clients" {
  description = "IAM members that may submit jobs by upload or message, such as group:ml@example.com."
  type        = set(string)
  default     = []
}

variable "api_users" {
  description = "IAM members that may create, change and cancel jobs by the API, such as group:ml@example.com. Roles of other services, such as roles/aiplatform.user, do not count. Who may act as every service account of the project, such as its owners, may do so, too."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for member in var.api_users : can(regex("^(user|group|serviceAccount|domain|principal|principalSet):.+$", member))])
    error_message = "api_users must be IAM members, such as group:ml@example.com: it is no list for everyone."
  }
}

variable "api_viewers" {
  description = "IAM members that may read all jobs by the API, with their environment variables, such as group:ml@example.com."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for member in var.api_viewers : can(regex("^(user|group|serviceAccount|domain|principal|principalSet):.+$", member))])
    error_message = "api_viewers must be IAM members, such as group:ml@example.com: it is no list for everyone."
  }
}

variable "capacity_advice" {
  description = "Whether `provision` may ask Google which zones have Spot VMs. false: it may not, for a Google that refuses the permission compute.advice.capacity in a custom role."
  type        = bool
  default     = true
}

variable "price_writers" {
  description = "IAM members that may store the list prices, from which limits and budgets in money are computed: `trainmaster prices update`. Owners of the project may do so, too."
  type        = set(string)
  default     = []
}

variable "api_access" {
  description = "How Cloud Run checks callers of the function `api`, which also checks every caller itself. no-invoker-check: Cloud Run does not check callers. allUsers: every caller passes the check; organisations with domain-restricted sharing refuse this grant. none: only members with roles/run.invoker pass the check, which Google's old clients cannot."
  type        = string
  default     = "no-invoker-check"

  validation {
    condition     = contains(["no-invoker-check", "allUsers", "none"], var.api_access)
    error_message = "api_access must be no-invoker-check, allUsers or none."
  }
}

variable "serial_port_logging" {
  description = "Whether Cloud Logging also stores the output of the VMs' serial consoles. It costs as much as the logs of the jobs do. The organisation policy compute.disableSerialPortLogging forbids it."
  type        = bool
  default     = false
}

variable "metrics" {
  description = "Seconds between two reports of each VM's CPU, memory, GPU and network use to Cloud Monitoring, which charges for them: 10 to 300, or off."
  type        = string
  default     = "60"

  validation {
    condition     = can(regex("^(off|[1-9][0-9]|[12][0-9]{2}|300)$", var.metrics))
    error_message = "metrics must be off, or a number of seconds from 10 to 300."
  }
}

variable "package_mirror" {
  description = "Whether VMs install packages from a mirror of PyPI in Artifact Registry instead of from PyPI, which saves the traffic through Cloud NAT."
  type        = bool
  default     = false
}

variable "boot_images" {
  description = "Boot images of your own in place of Google's: family of Google's image => projects/P/global/images/[family/]NAME. `make image` builds them."
  type        = map(string)
  default     = {}
}

variable "schemas" {
  description = "Whether Pub/Sub validates the agents' messages by schemas. The functions validate them in any case."
  type        = bool
  default     = true
}

variable "worker_regions" {
  description = "Regions in which jobs may run, with the address range of their subnetwork: region => range. null: `region` alone, with 10.128.0.0/20."
  type        = map(string)
  default     = null

  validation {
    condition     = var.worker_regions == null || length(coalesce(var.worker_regions, {})) > 0
    error_message = "worker_regions must name at least one region, or be null: then jobs run in `region`."
  }
}

variable "network" {
  description = "An existing network, also of a Shared VPC, in place of one that Terraform creates: its name, and that of its subnetworks, in which {region} stands for the region. worker_regions lists the regions; its ranges are not used."
  type        = object({ network = string, subnetwork = string })
  default     = null

  validation {
    condition     = var.network == null || can(regex("^projects/[^/]+/global/networks/[^/]+$", var.network.network)) && can(regex("^projects/[^/]+/regions/[^/]+/subnetworks/[^/]+$", var.network.subnetwork))
    error_message = "network must be like { network = \"projects/HOST/global/networks/NAME\", subnetwork = \"projects/HOST/regions/{region}/subnetworks/NAME-{region}\" }."
  }
}

variable "kms_key" {
  description = "Cloud KMS key that encrypts buckets, database and topics, as projects/P/locations/L/keyRings/R/cryptoKeys/K, in the location of `region`. A database keeps the key that it was created with. null: Google's keys."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key == null || can(regex("^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$", var.kms_key))
    error_message = "kms_key must be like projects/P/locations/L/keyRings/R/cryptoKeys/K."
  }
}

variable "point_in_time_recovery" {
  description = "Whether Firestore keeps all versions of the last seven days, so that a restore can choose a minute. They are charged as storage."
  type        = bool
  default     = false
}

variable "tpu" {
  description = "Whether jobs may use Cloud TPU. If false, workers cannot delete TPU nodes, and `provision` has no role on them."
  type        = bool
  default     = true
}

variable "walled_accounts" {
  description = "Service accounts whose jobs run in a separate network, which VMs of other jobs cannot reach: name => account, and address range by region. With tpu = true the firewall admits the network's whole address range, because it is unconfirmed whether rules by account match TPU hosts."
  type = map(object({
    service_account = string
    ranges          = map(string)
    tpu             = optional(bool, false)
  }))
  default = {}

  validation {
    condition     = alltrue([for name, wall in var.walled_accounts : can(regex("^[a-z][a-z0-9-]{0,20}[a-z0-9]$", name)) && can(regex("^[^@,=[:space:]]+@[^@,=[:space:]]+$", wall.service_account))])
    error_message = "walled_accounts must be like { finance = { service_account = \"finance@my-project.iam.gserviceaccount.com\", ranges = { us-central1 = \"10.132.0.0/20\" } } }; names have 2 to 22 lower-case letters, digits and hyphens."
  }

  validation {
    condition     = length(distinct([for wall in values(var.walled_accounts) : wall.service_account])) == length(var.walled_accounts)
    error_message = "walled_accounts has the same service_account twice: an account has one network."
  }
}

variable "nat" {
  description = "Whether VMs can reach the internet through Cloud NAT, for example to install packages. They have no external addresses."
  type        = bool
  default     = true
}

variable "budget" {
  description = "Monthly budget for warnings, in the billing account's currency. Requires billing_account. null: no budget."
  type        = number
  default     = null
}

variable "billing_account" {
  description = "Billing account of the budget, such as 012345-6789AB-CDEF01."
  type        = string
  default     = null
}

variable "keep_data" {
  description = "Whether `terraform destroy` keeps bucket and database: packages, checkpoints, models, jobs and their history."
  type        = bool
  default     = true
}

variable "notifications" {
  description = "Whether each transition of a job is published to the topic trainmaster-job-state. notification_webhooks imply it. docs/notifications.md"
  type        = bool
  default     = false
}

variable "notification_webhooks" {
  description = "Posts notifications to webhooks of Slack, Mattermost or Google Chat. secret: id of the secret in Secret Manager that holds the webhook's address. name: last part of the names of its function and account, for all webhooks but the first. filter: filter of the subscription; the default selects the ends of jobs that are not trials. console: address of the console, for links. Empty: no webhook."
  type = list(object({
    secret  = string
    name    = optional(string, "webhook")
    filter  = optional(string, "attributes.kind != \"trial\" AND (attributes.state = \"SUCCEEDED\" OR attributes.state = \"FAILED\" OR attributes.state = \"CANCELLED\")")
    console = optional(string, "")
  }))
  default = []

  validation {
    condition     = alltrue([for webhook in var.notification_webhooks : can(regex("^[A-Za-z0-9_-]{1,255}$", webhook.secret))])
    error_message = "Each secret of notification_webhooks must be the id of a secret in this project, such as slack-webhook."
  }

  validation {
    condition     = alltrue([for webhook in var.notification_webhooks : can(regex("^[a-z][a-z0-9-]{0,14}[a-z0-9]$", webhook.name))])
    error_message = "Each name of notification_webhooks must have 2 to 16 lower-case letters, digits and hyphens, such as chat."
  }

  validation {
    condition     = length(distinct(var.notification_webhooks[*].name)) == length(var.notification_webhooks)
    error_message = "The names of notification_webhooks must differ; one of them may be left out."
  }
}

variable "mail_failed_jobs" {
  description = "Whether Cloud Monitoring sends an e-mail to `notify` when a job fails, at most one in five minutes for each job. It does not depend on `notifications`."
  type        = bool
  default     = false
}

variable "ssh_users" {
  description = "IAM members that may open a shell on training VMs with `trainmaster ssh`, through Identity-Aware Proxy and OS Login, such as group:ml@example.com. They can act as the workers' service account. Empty: no VM accepts connections."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for member in var.ssh_users : can(regex("^(user|group|serviceAccount|domain):.+$", member))])
    error_message = "ssh_users must be IAM members, such as group:ml@example.com."
  }
}

variable "ssh_sudo" {
  description = "Whether `ssh_users` are administrators on training VMs. `trainmaster ssh --container` needs it, because the container engine belongs to root."
  type        = bool
  default     = false
}

variable "restrict_vm_names" {
  description = "Whether `provision` may touch only VMs whose names begin with \"tm-\", or \"tmNAME-\" in an installation with a name. false: every VM of the project, for a Google that refuses inserts or deletions under this condition (docs/runbooks.md#refused)."
  type        = bool
  default     = true
}

variable "role_suffix" {
  description = "Appended to the ids of the custom roles, such as \"2\". Google reserves the ids of deleted roles for 37 days, so an installation after a removal needs other ones."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^[A-Za-z0-9_.]{0,30}$", var.role_suffix))
    error_message = "role_suffix must have at most 30 letters, digits, underscores and periods."
  }
}
