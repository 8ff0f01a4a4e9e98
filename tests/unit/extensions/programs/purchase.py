"""A job file asks for standby VMs, Compute Engine is asked for them, and people see the word."""

from tests.support.jobs import a_job, a_spec
from trainmaster.core.model.capacity import decisive_kinds
from trainmaster.core.model.job import Job
from trainmaster.gcp.compute_fleet.purchase_requests import purchase_request
from trainmaster.gcp.firestore import documents
from trainmaster.jobspec.accept import accept

document = {**a_spec(), "trainmaster": {"queue": "standby"}}
plan = accept(document, default_job_id="digits_1").plan
price = plan.groups[0].purchase.price
assert purchase_request(price, "n1-standard-4").provisioning_model == "STANDBY"
assert decisive_kinds(plan) == ("Standby n1-standard-4",)
job = a_job(plan=plan)
assert documents.read(Job, documents.job_document(job)) == job
