CREATE TABLE users (id SERIAL PRIMARY KEY, nickname VARCHAR(32) NOT NULL, rating INT NOT NULL);
CREATE TABLE stories (id SERIAL PRIMARY KEY, title VARCHAR(128) NOT NULL, body TEXT NOT NULL, author INT NOT NULL);
CREATE TABLE comments (id SERIAL PRIMARY KEY, story INT NOT NULL, author INT NOT NULL, body VARCHAR(1024) NOT NULL);
CREATE INDEX comments_story ON comments (story);
INSERT INTO users (nickname, rating) SELECT 'user' || n, n % 100 FROM generate_series(1, 5000) AS n;
INSERT INTO stories (title, body, author) SELECT 'Story number ' || n, repeat('Paragraph of story ' || n || '. ', 12), 1 + n * 7 % 5000 FROM generate_series(1, 2000) AS n;
INSERT INTO comments (story, author, body) SELECT 1 + n % 2000, 1 + n * 13 % 5000, repeat('Comment ' || n || '. ', 4) FROM generate_series(1, 20000) AS n;
ANALYZE;
