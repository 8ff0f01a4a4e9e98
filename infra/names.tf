# Beginnings of the names of everything that must be unique in the project. None of them, with its hyphen, is the beginning of another one.
# docs/decisions/console-and-local-stack.md#decision-179
locals {
  name  = var.installation == "" ? "trainmaster" : "tm${var.installation}"
  vms   = var.installation == "" ? "tm-" : "${local.name}-"
  title = trimspace("Trainmaster ${var.installation}")

  database = var.installation == "" ? "(default)" : local.name

  # Titles of conditions on grants to users, who may be those of several installations: a grant with the same title would be one grant, and
  # would go with the first of the installations that is removed.
  of_installation = var.installation == "" ? "" : " of ${local.name}"
}
