"""A server of networks: the open inference protocol, version 2, over HTTP (KServe's and Triton's), on Starlette and uvicorn.

`repository.Repository` holds models by name and version, `batching.Batcher` joins requests that wait, `tensors` reads and writes the protocol's tensors,
`inference.routes` are the protocol's paths, and `app.create_app` puts them together. Other protocols are further lists of routes over the same application.
"""
