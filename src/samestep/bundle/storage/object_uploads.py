"""Uploads to S3 that a dead process left unfinished: no listing shows them, and they are billed until they are aborted.

The client that stores the parts cannot list them. boto3 can, where it is installed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
from typing import TYPE_CHECKING, Any

from samestep.bundle.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_WAIT_SECONDS = 20


class UnfinishedUploads:
    """The uploads below one prefix of a bucket of S3 that were neither completed nor aborted.

    Endpoint, region and credentials are those of the environment now, as the client that stores takes them; where it
    has no credentials, boto3 looks for its own.

    Args:
        bucket: its name.
        prefix: of the place within the bucket; empty or without a slash at its end.
    """

    def __init__(self, bucket: str, prefix: str) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._endpoint = _first(ENDPOINTS)
        self._settings = {
            "endpoint_url": self._endpoint,
            "region_name": _first(_REGIONS) or "us-east-1",
            "aws_access_key_id": _first(("AWS_ACCESS_KEY_ID",)),
            "aws_secret_access_key": _first(("AWS_SECRET_ACCESS_KEY",)),
            "aws_session_token": _first(("AWS_SESSION_TOKEN",)),
        }

    @property
    def reachable(self) -> bool:
        """Whether boto3 is installed."""
        return importlib.util.find_spec("boto3") is not None

    def abort(self, prefix: str, older_than: float) -> int:
        """Abort the uploads below ``prefix`` that began before the time given; return how many.

        Raises:
            StoreError: they cannot be listed, or one cannot be aborted.
        """
        with _told(f"s3://{self._bucket}/{self._prefix}{prefix}"):
            client = self._client
            pages = client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix
            )
            old = [
                upload
                for page in pages
                for upload in page.get("Uploads", ())
                if upload["Initiated"].timestamp() < older_than
            ]
            for upload in old:
                client.abort_multipart_upload(
                    Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                )
        return len(old)

    @functools.cached_property
    def _client(self) -> Any:
        boto3, config = importlib.import_module("boto3"), importlib.import_module("botocore.config")
        waiting = config.Config(
            connect_timeout=_WAIT_SECONDS,
            read_timeout=_WAIT_SECONDS,
            retries={"mode": "standard", "total_max_attempts": 2},
            s3={"addressing_style": "path" if self._endpoint else "auto"},
        )
        return boto3.client("s3", config=waiting, **self._settings)


def _first(names: tuple[str, ...]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


@contextlib.contextmanager
def _told(place: str) -> Iterator[None]:
    """Turn what boto3 raises into a ``StoreError``; its own words name the operation and the server's code."""
    failures = importlib.import_module("botocore.exceptions")
    try:
        yield
    except (failures.BotoCoreError, failures.ClientError) as error:
        raise StoreError(
            f"unfinished uploads below {place} cannot be aborted: {error}",
            hint="give these credentials s3:ListBucketMultipartUploads and s3:AbortMultipartUpload, "
            "or let a rule of the bucket abort them",
        ) from None
