from setuptools import find_packages, setup

setup(name="smoke-probe", version="0.1", packages=find_packages())
