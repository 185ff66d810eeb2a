CREATE DATABASE bulletin;
USE bulletin;
CREATE TABLE users (id INT PRIMARY KEY AUTO_INCREMENT, nickname VARCHAR(32) NOT NULL, rating INT NOT NULL) ENGINE=InnoDB;
CREATE TABLE stories (id INT PRIMARY KEY AUTO_INCREMENT, title VARCHAR(128) NOT NULL, body TEXT NOT NULL, author INT NOT NULL, KEY (author)) ENGINE=InnoDB;
CREATE TABLE comments (id INT PRIMARY KEY AUTO_INCREMENT, story INT NOT NULL, author INT NOT NULL, body VARCHAR(1024) NOT NULL, KEY (story)) ENGINE=InnoDB;
INSERT INTO users (nickname, rating) SELECT CONCAT('user', seq), seq % 100 FROM seq_1_to_5000;
INSERT INTO stories (title, body, author) SELECT CONCAT('Story number ', seq), REPEAT(CONCAT('Paragraph of story ', seq, '. '), 12), 1 + seq * 7 % 5000 FROM seq_1_to_2000;
INSERT INTO comments (story, author, body) SELECT 1 + seq % 2000, 1 + seq * 13 % 5000, REPEAT(CONCAT('Comment ', seq, '. '), 4) FROM seq_1_to_20000;
