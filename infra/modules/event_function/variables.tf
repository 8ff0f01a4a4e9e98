variable "name" {
  description = "Name of the module in functions/, such as vm_ready."
  type        = string
}

variable "prefix" {
  description = "Beginning of the names of everything that the installation owns."
  type        = string
}

variable "entry_point" {
  description = "Name of the Python function in the archive, which is also the name of its module in functions/. null: the same as `name`."
  type        = string
  default     = null
}

variable "project" {
  type = string
}

variable "region" {
  type = string
}

variable "topics" {
  description = "Names of the topics whose messages are pushed to the function. Empty for a function that clients call."
  type        = list(string)
}

variable "source_bucket" {
  type = string
}

variable "source_object" {
  type = string
}

variable "service_account" {
  description = "E-mail address of the function's service account."
  type        = string
}

variable "pusher" {
  description = "E-mail address of the service account with which Pub/Sub calls the function."
  type        = string
}

variable "pubsub_agent" {
  description = "IAM member of Pub/Sub's service agent, which moves undeliverable messages to the dead-letter topic."
  type        = string
}

variable "dead_letter_topic" {
  type = string
}

variable "environment" {
  type = map(string)
}

variable "memory" {
  type = string
}

variable "cpu" {
  type    = string
  default = "1"
}

variable "timeout_s" {
  description = "Timeout of one call, and acknowledgement deadline of its messages, in seconds."
  type        = number
}

variable "concurrency" {
  description = "Number of requests that one instance handles at the same time."
  type        = number
}

variable "max_instances" {
  type = number
}

variable "builder" {
  description = "Resource name of the service account with which Cloud Build builds the function."
  type        = string
}

variable "repository" {
  description = "Id of the Artifact Registry repository for the function's image."
  type        = string
}

variable "description" {
  description = "Description of the function. Empty: the path of its module."
  type        = string
  default     = ""
}

variable "subscription_suffix" {
  description = "Last part of the names of the subscriptions, which begin with the topic's. Only one function that reads a topic may leave it out."
  type        = string
  default     = ""
}

variable "filter" {
  description = "Filter of the subscriptions, by the attributes of the messages. Empty: all messages."
  type        = string
  default     = ""
}

variable "secrets" {
  description = "Environment variables with the values of secrets: variable => id of the secret."
  type        = map(string)
  default     = {}
}
