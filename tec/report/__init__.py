"""The report of a network: one self-contained HTML page. `tec show MODEL --html FILE`, `net.show()`.

    steps      graph.py      the steps, who reads whom, layers that repeat; listing.py: kernels and what they need
    times      measure.py    of kernels: a device's, or the time model's; what limits them: limits.py
    texts      texts.py      loop IR, LLVM IR and assembly with their lines linked, registers and stalls beside them
    page       page.py       all of it as data, the template and the scripts in `assets` around it; show.py opens it

Everything is drawn by the page's own scripts from the data in it; it loads nothing.
"""
