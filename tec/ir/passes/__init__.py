"""The passes: one file, one public function `name(func, target) -> func`, run in the order of `tec.driver.PIPELINE`.

`split_host_device` alone gives more: `(host, kernels)`. Each is imported when it is run: a first kernel meets few of them.
"""
