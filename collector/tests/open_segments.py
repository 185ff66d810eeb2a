"""Opens the segments below a folder with DuckDB and with pandas, as a person would, and prints what each found as JSON."""

import glob
import json
import sys

import duckdb
import pandas

folder = sys.argv[1]
FILES = ["host", "workload", "listener", "edge", "device", "culprit"]


def with_duckdb():
    base = f"{folder}/*"
    columns = {}
    for name in FILES:
        rows = duckdb.sql(f"DESCRIBE SELECT * FROM read_parquet('{base}/{name}.parquet')").fetchall()
        columns[f"{name}.parquet"] = [row[0] for row in rows]
        if name == "host":
            start_type = next(row[1] for row in rows if row[0] == "start")
    windows = duckdb.sql(f"SELECT count(DISTINCT start) FROM read_parquet('{base}/host.parquet')").fetchall()[0][0]
    drops, limit, workload = duckdb.sql(
        f'SELECT sum(drops)::BIGINT, max("limit"), min(workload) FROM read_parquet(\'{base}/listener.parquet\')'
    ).fetchall()[0]
    return {
        "columns": columns,
        "windows": windows,
        "drops": drops,
        "limit": limit,
        "workload": workload,
        "start_type": start_type,
    }


def with_pandas():
    def read(name):
        return pandas.concat(pandas.read_parquet(path) for path in sorted(glob.glob(f"{folder}/*/{name}.parquet")))

    tables = {name: read(name) for name in FILES}
    listener = tables["listener"]
    return {
        "columns": {f"{name}.parquet": list(table.columns) for name, table in tables.items()},
        "windows": int(tables["host"]["start"].nunique()),
        "drops": int(listener["drops"].sum()),
        "limit": int(listener["limit"].max()),
        "workload": listener["workload"].min(),
        "start_type": str(tables["host"]["start"].dtype),
    }


json.dump({"duckdb": with_duckdb(), "pandas": with_pandas()}, sys.stdout)
