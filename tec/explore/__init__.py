"""`tec explore`: a page where one types a program and sees what it becomes, on the loopback or as one file.

    subject    subject.py    what of a program is shown: a schedule, a kernel or a tile kernel, with its arguments (`show`)
    answer     answer.py     what becomes of it for a target: loops, LLVM IR, assembly, footprint, modelled time; pictures: pictures.py
    worker     worker.py     the process in which programs run, with a time limit; inside.py is its main
    server     app.py        the page and the one address that it asks; page.py: the page's text

A program runs with the rights of who started the server. A page of another origin cannot make it run one: see `app`.
"""
