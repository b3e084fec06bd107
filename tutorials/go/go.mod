module tec/classify

go 1.19
